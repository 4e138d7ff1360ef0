"""Axes: the named axes of one tensor; plain data that JSON carries."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Axis", "Shape"]


@dataclass(frozen=True)
class Axis:
    """One axis. text: its name ("B", "H*d", "(L H)", "4", "?"); size: how many entries the run that is shown had.

    scrambled: its entries mix several axes of where they come from, although the size may be legal.
    """

    text: str
    size: int
    scrambled: bool = False

    def said(self, *, real: bool) -> str:
        """The name of the axis, or its size in the run that is shown."""
        return str(self.size) if real else self.text


@dataclass(frozen=True)
class Shape:
    """The axes of one tensor, from the first to the last."""

    axes: tuple[Axis, ...]

    def __str__(self) -> str:
        return self.said()

    def said(self, *, real: bool = False) -> str:
        """The shape in the notes' own style: "[B, L, H*d]"; real: in numbers."""
        return f"[{', '.join(each.said(real=real) for each in self.axes)}]"

    @property
    def is_scrambled(self) -> bool:
        """Whether an axis mixes what several held."""
        return any(each.scrambled for each in self.axes)
