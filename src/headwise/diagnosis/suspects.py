"""Suspects: what the checks of a run hand to the examination: a kind, a place, and what would put it right."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from headwise.diagnosis.faults import FAULTS
from headwise.diagnosis.faults.fault import Fault
from headwise.recording import Recalled, Site
from headwise.source import Span

__all__ = ["Change", "Hiding", "HidingBeside", "Scaled", "Suspect", "Undropping", "both", "together"]

# the names of the arguments of torch's attention, in order
ATTENTION = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
# the place of its share among the arguments of torch's attention
DROPPED = 4
Change = Callable[[Any, dict[str, Any]], None]


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
class Suspect:
    """One thing that is wrong, or odd. kind: of the table of faults. span: where. stand_ins: what would put it right,
    by site; {}: not known. severity: "" becomes that of its kind.

    said: values for its sentences, and what a patch needs to know, by names that begin with "_".
    is_local: its stand-ins are right for the shapes of its own plan only. change: what would put it right in the
    target itself, before it is called. home: where what the operation takes was made wrong, None: the operation is
    wrong. guess: what of the call that shows it is nobody's word but ours, "layout", "axes" (too few), "sizes",
    "cache" or "rotation"; "": it shows however the code is called.
    """

    kind: str
    span: Span | None
    stand_ins: Mapping[Site, Callable[..., Any]] = field(default_factory=dict)
    severity: str = ""
    said: Mapping[str, object] = field(default_factory=dict)
    evidence: str = ""
    proved: bool | None = None
    is_local: bool = False
    change: Change | None = None
    home: Span | None = None
    guess: str = ""

    def __post_init__(self) -> None:
        if not self.severity:
            object.__setattr__(self, "severity", self.fault.severity)

    @property
    def fault(self) -> Fault:
        """The row of its kind."""
        return FAULTS[self.kind]

    @property
    def general(self) -> str:
        """The kind of which its own is a case, or its own."""
        return self.fault.general or self.kind

    @property
    def is_mendable(self) -> bool:
        """Whether a run can be repeated with it put right."""
        return bool(self.stand_ins) or self.change is not None


def together(stand_ins: Mapping[Site, Callable[..., Any]], suspect: Suspect) -> dict[Site, Callable[..., Any]]:
    """Stand-ins with those of a suspect; of two at one site the first stays, and what scales or hides is put on it."""
    out = dict(stand_ins)
    for site, value in suspect.stand_ins.items():
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
