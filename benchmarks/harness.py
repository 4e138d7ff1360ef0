"""Two sides of a case: shown to give the same numbers first, then timed in turn, or weighed."""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from benchmarks import peak
from benchmarks.rate import matmul_rate
from headwise.testing import BudgetError, assert_within_budget

Run = Callable[[], object]
Tensors = tuple[Tensor, ...]
Numbers = Callable[[], Tensors]
# what both sides are to give, computed plainly in a dtype
Definition = Callable[[torch.dtype], Tensors]

WARM_UPS = 2
# a block of calls lasts this long at least, so that reading the clock costs nothing beside it
BLOCK_SECONDS = 2e-3
# a turn of both sides that takes this long warms them up by itself
LONG_SECONDS = 2.5
# after so long no further round begins, whatever the effort
LONGEST_SECONDS = 45.0


class WrongNumbersError(Exception):
    """A side does not compute what the case says, so its time means nothing."""


class NotMeasuredError(Exception):
    """The figure of a case cannot be had here; the message says why."""


class Pair(NamedTuple):
    """What a call took on each side, one right after the other: seconds, or bytes; NaN where a side was not run."""

    ours: float
    theirs: float


@dataclass(frozen=True)
class Quantity:
    """What a case reports of each pair, and on which side of its target it should be."""

    name: str
    unit: str
    of: Callable[[Pair], float]
    is_better_higher: bool

    def meets(self, found: float, target: float) -> bool:
        return found >= target if self.is_better_higher else found <= target


RATIO = Quantity("theirs/ours", "x", lambda pair: pair.theirs / pair.ours, is_better_higher=True)
EXTRA_MICROSECONDS = Quantity("ours-theirs", "us", lambda pair: (pair.ours - pair.theirs) * 1e6, is_better_higher=False)
EXTRA_MILLISECONDS = Quantity("ours-theirs", "ms", lambda pair: (pair.ours - pair.theirs) * 1e3, is_better_higher=False)
TIMES = Quantity("ours/theirs", "x", lambda pair: pair.ours / pair.theirs, is_better_higher=False)
OUR_SECONDS = Quantity("ours", "s", lambda pair: pair.ours, is_better_higher=False)
OUR_MILLISECONDS = Quantity("ours", "ms", lambda pair: pair.ours * 1e3, is_better_higher=False)
ADDED_MEGABYTES = Quantity("ours-theirs", "MB", lambda pair: (pair.ours - pair.theirs) / 1e6, is_better_higher=False)
OUR_MEGABYTES = Quantity("ours", "MB", lambda pair: pair.ours / 1e6, is_better_higher=False)


@dataclass(frozen=True)
class Case:
    """Two ways to do one thing.

    check: raises WrongNumbersError unless both do it. target None: only reported. theirs None: too large to be run,
    which only a case in bytes may be. flops: of the matrix products of our side, None: no share of torch's own rate is
    told. is_weighed: the peak memory of both sides is told beside their times. is_in_bytes: it is measured in their
    place. is_long: left out of a quick look.
    """

    name: str
    beside: str
    shape: str
    dtype: str
    ours: Run
    theirs: Run | None
    check: Callable[[], None]
    quantity: Quantity = RATIO
    target: float | None = None
    flops: float | None = None
    is_weighed: bool = False
    is_in_bytes: bool = False
    is_long: bool = False


@dataclass(frozen=True)
class Absent:
    """A case that cannot be built here, and one sentence on why."""

    name: str
    beside: str
    shape: str
    reason: str


Cases = Iterator[Case | Absent]


@dataclass(frozen=True)
class Effort:
    """How long a case is timed: this many seconds, and this many rounds, at least."""

    seconds: float
    rounds: int


THOROUGH = Effort(seconds=4.0, rounds=9)
# for groups of many cases, and for long ones
BRIEF = Effort(seconds=1.0, rounds=3)
# for a group of short cases and a very long one
STEADY = Effort(seconds=4.0, rounds=3)
QUICK = Effort(seconds=0.3, rounds=3)


@dataclass(frozen=True)
class Measured:
    """The pairs of one case; its peak memory, None: not measured; and torch's rate in flop/s, None: not asked for."""

    case: Case
    pairs: tuple[Pair, ...]
    memory: Pair | None = None
    rate: float | None = None

    @property
    def ours(self) -> float:
        """The median of our side."""
        return statistics.median(pair.ours for pair in self.pairs)

    @property
    def theirs(self) -> float:
        """The median of their side."""
        return statistics.median(pair.theirs for pair in self.pairs)

    @property
    def quartiles(self) -> tuple[float, float, float]:
        """The lower quartile, the median and the upper quartile of the quantity, pair by pair."""
        found = [self.case.quantity.of(pair) for pair in self.pairs]
        # one figure is its own quartiles, which Python before 3.13 refuses
        low, middle, high = statistics.quantiles(found * 2 if len(found) == 1 else found, n=4, method="inclusive")
        return low, middle, high

    @property
    def share(self) -> float | None:
        """The rate of our products as a share of torch's, both of one run; None: not asked for."""
        if self.case.flops is None or self.rate is None:
            return None
        return self.case.flops / self.ours / self.rate

    @property
    def is_met(self) -> bool | None:
        """Whether the median reaches the target; None: there is none."""
        target = self.case.target
        return None if target is None else self.case.quantity.meets(self.quartiles[1], target)


def measure(case: Case, effort: Effort, *, clock: Callable[[], float] = time.perf_counter) -> Measured:
    """The figures of a case; WrongNumbersError where a side is wrong, NotMeasuredError where memory cannot be had."""
    missing = peak.why_not()
    if case.is_in_bytes and missing:
        raise NotMeasuredError(missing)
    case.check()
    if case.is_in_bytes:
        pair = weigh(case)
        if not pair.ours:
            # nothing can be said as a multiple of it
            raise NotMeasuredError("our side took less memory than the system counts: weigh a larger input")
        return Measured(case, (pair,))
    if case.theirs is None:
        raise ValueError(f"{case.name} has nothing to be timed beside: give it theirs, or measure it in bytes")
    pairs = interleave(case.ours, case.theirs, effort, clock=clock)
    memory = weigh(case) if case.is_weighed and not missing else None
    return Measured(case, pairs, memory, None if case.flops is None else matmul_rate(getattr(torch, case.dtype)))


def weigh(case: Case) -> Pair:
    """The peak memory of a call on each side, in bytes beyond what was there before it."""
    return Pair(*(math.nan if run is None else peak.peak_extra(run) for run in (case.ours, case.theirs)))


def interleave(
    ours: Run, theirs: Run, effort: Effort, *, clock: Callable[[], float] = time.perf_counter
) -> tuple[Pair, ...]:
    """Both sides timed in turn: ours, theirs, ours, theirs, ... after a warm-up of both."""
    calls = _warm_up(ours, theirs, clock)
    pairs: list[Pair] = []
    begin = clock()
    end, last = begin + effort.seconds, begin + LONGEST_SECONDS
    was_collecting = gc.isenabled()
    gc.disable()
    try:
        while not pairs or clock() < end or (len(pairs) < effort.rounds and clock() < last):
            pairs.append(Pair(_seconds(ours, calls, clock), _seconds(theirs, calls, clock)))
    finally:
        if was_collecting:
            gc.enable()
    return tuple(pairs)


def _warm_up(ours: Run, theirs: Run, clock: Callable[[], float]) -> int:
    """Run both sides a few times, or once where that takes long, and learn how many calls make a block."""
    for _ in range(WARM_UPS + 1):
        turn = _seconds(ours, 1, clock), _seconds(theirs, 1, clock)
        if sum(turn) >= LONG_SECONDS:
            break
    fastest = min(turn)
    return math.ceil(BLOCK_SECONDS / fastest) if fastest < BLOCK_SECONDS else 1


def same_numbers(ours: Numbers, theirs: Numbers, definition: Definition, dtype: torch.dtype) -> Callable[[], None]:
    """The check that both sides are as near to definition(float64) as definition(dtype) justifies."""

    def check() -> None:
        exact, plain = definition(torch.float64), definition(dtype)
        for side, run in (("ours", ours), ("theirs", theirs)):
            compare(side, run(), exact, plain)

    return check


def compare(side: str, found: Tensors, exact: Tensors, plain: Tensors) -> None:
    """Raise WrongNumbersError unless what a side found is as near to exact as plain justifies, tensor by tensor."""
    if len(found) != len(exact):
        raise WrongNumbersError(f"{side} gives {len(found)} tensors, but its definition {len(exact)}")
    for place, tensors in enumerate(zip(found, exact, plain, strict=True)):
        try:
            assert_within_budget(*(tensor.detach() for tensor in tensors))
        except BudgetError as error:
            raise WrongNumbersError(f"{side} is wrong in tensor {place}: {error}") from error


def _seconds(run: Run, calls: int, clock: Callable[[], float]) -> float:
    start = clock()
    for _ in range(calls):
        run()
    return (clock() - start) / calls
