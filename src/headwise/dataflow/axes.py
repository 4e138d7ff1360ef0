"""Axes: the named axes of one tensor; plain data that JSON carries."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["NamedAxis", "Shape"]


@dataclass(frozen=True)
class NamedAxis:
    """One axis. text: its name ("B", "H*d", "(L H)", "4", "?"); size: in the shown run.

    scrambled: its entries mix several axes of the source, although the size may be legal.
    """

    text: str
    size: int
    scrambled: bool = False

    def said(self, *, real: bool) -> str:
        """The name of the axis; real: its size in the shown run."""
        return str(self.size) if real else self.text


@dataclass(frozen=True)
class Shape:
    """The axes of one tensor, from the first to the last."""

    axes: tuple[NamedAxis, ...]

    def __str__(self) -> str:
        return self.said()

    def said(self, *, real: bool = False) -> str:
        """The shape as text: "[B, L, H*d]"; real: in numbers."""
        return f"[{', '.join(axis.said(real=real) for axis in self.axes)}]"

    @property
    def is_scrambled(self) -> bool:
        """Whether an axis mixes several axes of the source."""
        return any(axis.scrambled for axis in self.axes)
