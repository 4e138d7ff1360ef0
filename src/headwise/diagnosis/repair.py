"""Repair: what would put something right: in a run, in the target itself, and in the source."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from headwise.recording import Recalled, Site
from headwise.source import Code, Edits

if TYPE_CHECKING:
    from headwise.diagnosis.suspects import Suspect

__all__ = ["Change", "Hiding", "HidingBeside", "Repair", "Scaled", "Undropping", "both"]

# the names of the arguments of torch's attention, in order
ATTENTION = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
# the place of its share among the arguments of torch's attention
DROPPED = 4
Change = Callable[[Any, dict[str, Any]], None]
StandIns = Mapping[Site, Callable[..., Any]]
Rewriting = Callable[[Code, "Suspect"], Iterator[Edits]]


def both(first: Change | None, second: Change) -> Change:
    """Two changes of a target, one after the other."""

    def change(target: Any, options: dict[str, Any]) -> None:
        if first is not None:
            first(target, options)
        second(target, options)

    return change


@dataclass(frozen=True)
class Scaled:
    """A stand-in that multiplies what another function gives."""

    function: Callable[..., Any]
    factor: float

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self.function(*args, **options) * self.factor


@dataclass(frozen=True, eq=False)
class Hiding:
    """A stand-in for a softmax that first hides scores. open: True where they stay. Scores of another shape, as of a
    layer with other heads on the same line, are left as they are.
    """

    function: Callable[..., Any]
    open: Tensor

    def __call__(self, *args: Any, **options: Any) -> Any:
        if args[0].ndim == self.open.ndim and args[0].shape != self.open.shape:
            return self.function(*args, **options)
        return self.function(args[0].masked_fill(~self.open, float("-inf")), *args[1:], **options)


@dataclass(frozen=True)
class HidingBeside:
    """A stand-in for torch's attention that hides more than its mask does. open: True where keys stay."""

    function: Callable[..., Any]
    open: Tensor

    def __call__(self, *args: Any, **options: Any) -> Any:
        named = dict(zip(ATTENTION, args, strict=False)) | options
        mask = named.get("attn_mask")
        wider = self.open
        if named.pop("is_causal", False):
            wider = wider & torch.ones(wider.shape[-2:], dtype=torch.bool).tril()
        if mask is not None and mask.dtype == torch.bool:
            wider = mask & wider
        elif mask is not None:
            wider = mask.expand(self.open.shape).masked_fill(~wider, float("-inf"))
        return self.function(**{**named, "attn_mask": wider})


@dataclass(frozen=True)
class Undropping:
    """A stand-in for torch's attention that drops nothing."""

    function: Callable[..., Any]

    def __call__(self, *args: Any, **options: Any) -> Any:
        arguments = args if len(args) <= DROPPED else (*args[:DROPPED], 0.0, *args[DROPPED + 1 :])
        return self.function(
            *arguments, **{name: 0.0 if name == "dropout_p" else each for name, each in options.items()}
        )


@dataclass(frozen=True)
class Repair:
    """One hypothesis of what is wrong, as what would put it right. stand_ins: in place of the functions of a run, by
    site. change: of the target, before it is called. rewriting: gives the edits of the source at the place,
    the likeliest first; None: those of the kind. is_local: the stand-ins are right for the shapes of one plan only.
    """

    stand_ins: StandIns = field(default_factory=dict)
    change: Change | None = None
    rewriting: Rewriting | None = None
    is_local: bool = False

    @property
    def is_runnable(self) -> bool:
        """Whether a run can be repeated with it."""
        return bool(self.stand_ins) or self.change is not None

    def changing(self, change: Change | None) -> Change | None:
        """A change of a target, and its own after it."""
        return change if self.change is None else both(change, self.change)

    def after(self, stand_ins: StandIns) -> dict[Site, Callable[..., Any]]:
        """Stand-ins with its own; of two at one site the first stays, and what scales or hides is put on it."""
        out = dict(stand_ins)
        for site, value in self.stand_ins.items():
            if site not in out:
                out[site] = value
            elif isinstance(value, Scaled):
                out[site] = Scaled(out[site], value.factor)
            elif isinstance(value, Undropping) and isinstance(earlier := out[site], Recalled):
                out[site] = replace(earlier, function=Undropping(earlier.function))
            elif isinstance(value, Recalled) and isinstance(earlier := out[site], Undropping):
                out[site] = replace(value, function=earlier)
            elif isinstance(value, Hiding):
                before = out[site]
                if isinstance(before, Hiding):
                    out[site] = Hiding(before.function, before.open & value.open)
                else:
                    out[site] = Hiding(before, value.open)
        return out
