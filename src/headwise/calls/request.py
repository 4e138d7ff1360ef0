"""Request: what a search is asked for, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headwise.calls.plan import Named, Plan
from headwise.calls.size_bindings import Numbers
from headwise.calls.symbols import alike
from headwise.calls.trial import Tried

__all__ = ["Found", "Wish"]


@dataclass(frozen=True)
class Found:
    """plans: the settings that ran, the richest first. failures: settings that raised. has_nan: some call ran, and what
    it gave held NaN, which was a failure. mask: the one that was declared, with symbols for its sizes; None: there is
    none, or its sizes are none of the plans'."""

    plans: tuple[Plan, ...]
    failures: tuple[Tried, ...]
    has_nan: bool = False
    mask: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Wish:
    """What the person said. init, call: what stands; numbers: what is bound to symbols; mask: with symbols for its
    sizes; symbols: what they stand for; ranks: how many axes an input has; cross: whether keys may, must or must not
    have a length of their own. lengths: that a built module may insist on. finite: whether a call that gives NaN has
    failed. fixed: of which the numbers are always their sizes, as in
    `fixed_at`; "": of none. is_bare: what is declared of the mask fits
    nothing, and is left out. learns: whether errors are followed where no suggested call runs."""

    init: Mapping[str, Any] = field(default_factory=dict)
    call: Mapping[str, Any] = field(default_factory=dict)
    numbers: Numbers = field(default_factory=Numbers)
    mask: Mapping[str, Any] | None = None
    symbols: Mapping[str, Named] = field(default_factory=dict)
    ranks: Mapping[str, int] = field(default_factory=dict)
    cross: bool | None = None
    lengths: tuple[int, ...] = ()
    finite: bool = True
    fixed: str = ""
    is_bare: bool = False
    learns: bool = True

    @property
    def masked(self) -> str:
        """The argument whose mask is declared; "": there is none."""
        mask = self.mask or self.numbers.mask
        return "" if mask is None else str(mask["argument"])

    def masks(self, plan: Plan) -> list[Mapping[str, Any]]:
        """What the declared mask may be in a plan, with symbols for its sizes."""
        if self.mask is None:
            return [*self.numbers.masks(plan)]
        has_keys = any(symbol.name == "S" for symbol in plan.symbols)
        return [self.mask if has_keys else {**self.mask, "shape": alike(self.mask["shape"])}]
