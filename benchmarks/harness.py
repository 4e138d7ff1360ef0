"""Two sides of a case: shown to give the same numbers first, then timed in turn."""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from headwise.testing import BudgetError, assert_within_budget

Run = Callable[[], object]
Numbers = Callable[[], tuple[Tensor, ...]]

WARM_UPS = 2
# a block of calls lasts this long at least, so that reading the clock costs nothing beside it
BLOCK_SECONDS = 2e-3


class WrongNumbersError(Exception):
    """A side does not compute what the case says, so its time means nothing."""


class Pair(NamedTuple):
    """Seconds a call took on each side, one right after the other."""

    ours: float
    theirs: float


@dataclass(frozen=True)
class Quantity:
    """What a case reports of each pair of times, and on which side of its target it should be."""

    name: str
    unit: str
    of: Callable[[Pair], float]
    is_better_higher: bool

    def meets(self, found: float, target: float) -> bool:
        return found >= target if self.is_better_higher else found <= target


RATIO = Quantity("theirs/ours", "x", lambda pair: pair.theirs / pair.ours, is_better_higher=True)
EXTRA_MICROSECONDS = Quantity("ours-theirs", "us", lambda pair: (pair.ours - pair.theirs) * 1e6, is_better_higher=False)
EXTRA_MILLISECONDS = Quantity("ours-theirs", "ms", lambda pair: (pair.ours - pair.theirs) * 1e3, is_better_higher=False)
OUR_SECONDS = Quantity("ours", "s", lambda pair: pair.ours, is_better_higher=False)


@dataclass(frozen=True)
class Case:
    """Two ways to do one thing. check: raises WrongNumbersError unless both do it. target None: only reported."""

    name: str
    beside: str
    shape: str
    dtype: str
    ours: Run
    theirs: Run
    check: Callable[[], None]
    quantity: Quantity = RATIO
    target: float | None = None


@dataclass(frozen=True)
class Effort:
    """How long a case is timed: this many seconds, and this many rounds, at least."""

    seconds: float
    rounds: int


THOROUGH = Effort(seconds=4.0, rounds=9)
QUICK = Effort(seconds=0.3, rounds=3)


@dataclass(frozen=True)
class Measured:
    """The times of one case."""

    case: Case
    pairs: tuple[Pair, ...]

    @property
    def ours(self) -> float:
        """The median of our seconds."""
        return statistics.median(pair.ours for pair in self.pairs)

    @property
    def theirs(self) -> float:
        """The median of their seconds."""
        return statistics.median(pair.theirs for pair in self.pairs)

    @property
    def quartiles(self) -> tuple[float, float, float]:
        """The lower quartile, the median and the upper quartile of the quantity, pair by pair."""
        low, middle, high = statistics.quantiles(map(self.case.quantity.of, self.pairs), n=4, method="inclusive")
        return low, middle, high

    @property
    def is_met(self) -> bool | None:
        """Whether the median reaches the target; None: there is none."""
        target = self.case.target
        return None if target is None else self.case.quantity.meets(self.quartiles[1], target)


def measure(case: Case, effort: Effort, *, clock: Callable[[], float] = time.perf_counter) -> Measured:
    """The times of a case, or WrongNumbersError where a side is wrong."""
    case.check()
    return Measured(case, interleave(case.ours, case.theirs, effort, clock=clock))


def interleave(
    ours: Run, theirs: Run, effort: Effort, *, clock: Callable[[], float] = time.perf_counter
) -> tuple[Pair, ...]:
    """Both sides timed in turn: ours, theirs, ours, theirs, ... after a warm-up of both."""
    for run in (ours, theirs) * WARM_UPS:
        run()
    fastest = min(_seconds(ours, 1, clock), _seconds(theirs, 1, clock))
    calls = math.ceil(BLOCK_SECONDS / fastest) if fastest < BLOCK_SECONDS else 1
    pairs: list[Pair] = []
    end = clock() + effort.seconds
    was_collecting = gc.isenabled()
    gc.disable()
    try:
        while len(pairs) < effort.rounds or clock() < end:
            pairs.append(Pair(_seconds(ours, calls, clock), _seconds(theirs, calls, clock)))
    finally:
        if was_collecting:
            gc.enable()
    return tuple(pairs)


def same_numbers(
    ours: Numbers, theirs: Numbers, definition: Callable[[torch.dtype], tuple[Tensor, ...]], dtype: torch.dtype
) -> Callable[[], None]:
    """The check that both sides are as near to definition(float64) as definition(dtype) justifies."""

    def check() -> None:
        exact, plain = definition(torch.float64), definition(dtype)
        for side, run in (("ours", ours), ("theirs", theirs)):
            found = run()
            if len(found) != len(exact):
                raise WrongNumbersError(f"{side} gives {len(found)} tensors, but its definition {len(exact)}")
            for place, tensors in enumerate(zip(found, exact, plain, strict=True)):
                try:
                    assert_within_budget(*(tensor.detach() for tensor in tensors))
                except BudgetError as error:
                    raise WrongNumbersError(f"{side} is wrong in tensor {place}: {error}") from error

    return check


def _seconds(run: Run, calls: int, clock: Callable[[], float]) -> float:
    start = clock()
    for _ in range(calls):
        run()
    return (clock() - start) / calls
