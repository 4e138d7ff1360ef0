"""Error search: where no suggested call runs, its errors tell what to change, one argument at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import count
from math import prod
from typing import Any

from headwise.calls.argument_origins import LARGEST, Origins
from headwise.calls.error_repairs import lessons
from headwise.calls.failed_statement import place
from headwise.calls.first_use import as_used
from headwise.calls.plan import Plan, evaluated
from headwise.calls.plan_variants import with_own_lengths
from headwise.calls.request import Wish
from headwise.calls.source_hints import Reading
from headwise.calls.symbols import spoken
from headwise.calls.trial import PROBES, Attempts, in_single, quiet
from headwise.calls.width_repairs import TOKEN_AXES, mended
from headwise.recording import Budget, spent

__all__ = ["learned"]

# how many things are changed of one call, and how many calls one error suggests at most
DEEPEST, WIDEST = 5, 16
# the calls that are begun with
SEEDS, FULLER = 6, 2
# work after which a call is not worth to be run as often as it has to be
SLOW = 25_000


@dataclass(frozen=True)
class _Failed:
    """A call that raised: with which sizes, what it was given, and what became of that."""

    error: Exception
    sizes: Mapping[str, int]
    options: Mapping[str, Any]
    origins: Origins


@dataclass(order=True)
class _Waiting:
    """A plan that is to be tried: few changes first, and of those what came far."""

    rank: tuple[int, int, int]
    plan: Plan = field(compare=False)
    depth: int = field(compare=False)


def learned(
    missed: Sequence[Plan],
    wish: Wish,
    reading: Reading,
    runs: Attempts,
    work: int,
    renamed: Callable[[Plan], Plan],
) -> tuple[Plan | None, Plan | None]:
    """The first plan that runs, made of some that fail by what their errors tell; and of those that were made and fail
    the one that came furthest. None: there is none.
    """
    most, beyond, alone = 0, None, None
    budget, order = Budget(work), count()
    waiting: list[_Waiting] = []
    visited: list[Plan] = []
    met: Counter[tuple[str, int]] = Counter()
    lengths = {each for each in wish.init.values() if each in TOKEN_AXES}
    seeds = _seeds(missed)
    for number, plan in enumerate(
        [*(each for each in _used(seeds, renamed, reading.means) if _stands(each, wish)), *seeds]
    ):
        heappush(waiting, _Waiting((number, 0, next(order)), plan, 0))
    while waiting and not budget.is_over:
        current = heappop(waiting)
        if current.plan in visited:
            continue
        visited.append(current.plan)
        failed = _failed(current.plan)
        if failed is None:
            working = _as_it_is(current.plan)
            if wish.cross in (None, working.setting == "cross") and runs.all_run(working):
                if "B" in spoken(list(working.call.values())):
                    is_free = wish.cross is None and working.setting == "self"
                    return with_own_lengths(working, runs.all_run, renamed) if is_free else working, beyond
                # a call of one sample that happens to run is taken where no batch does
                alone = alone or working
            continue
        if failed.origins.count > most:
            most, beyond = failed.origins.count, current.plan if current.plan not in seeds else None
        if current.depth == DEEPEST:
            continue
        at = place(failed.error, failed.options, failed.origins)
        more = [
            *mended(current.plan, failed.error, declared=lengths),
            *lessons(current.plan, failed.error, at, failed.sizes, reading),
        ]
        # of calls that fail alike, the second is changed later
        met[str(failed.error), failed.origins.count] += 1
        rank = current.rank[0] + met[str(failed.error), failed.origins.count]
        for suggested in (renamed(variant) for variant in more[:WIDEST] if _stands(variant, wish)):
            heappush(waiting, _Waiting((rank, -failed.origins.count, next(order)), suggested, current.depth + 1))
    return alone, beyond


def _seeds(missed: Sequence[Plan]) -> list[Plan]:
    """The likeliest of the calls that failed, one of each layout and draft, some that were given more, and batches of
    token numbers alone.
    """
    by_layout: dict[tuple[str, ...], Plan] = {}
    fuller: dict[tuple[str, ...], Plan] = {}
    counted: dict[str, Plan] = {}
    for plan in missed:
        if plan.call:
            fixed = [(symbol.name, symbol.fixed) for symbol in plan.symbols if symbol.fixed is not None]
            first = by_layout.setdefault((f"{plan.init} {fixed}", str(plan.call.get("_layout")), plan.setting), plan)
            if not plan.call.keys() <= first.call.keys():
                fuller.setdefault(tuple(plan.call), plan)
            if _is_of_numbers(plan):
                counted.setdefault(f"{plan.call}", plan)
    seeds = [*list(by_layout.values())[:SEEDS], *list(fuller.values())[:FULLER]]
    return [*seeds, *[each for each in counted.values() if each not in seeds][:FULLER]]


def _is_of_numbers(plan: Plan) -> bool:
    """Whether a plan gives a batch of sequences of token numbers, and no features."""
    shapes = [value["_ids"] for value in plan.call.values() if isinstance(value, Mapping) and "_ids" in value]
    has_features = any(isinstance(value, list) for value in plan.call.values())
    return any({*shape} == {"B", "L"} for shape in shapes) and not has_features


def _used(seeds: Sequence[Plan], renamed: Callable[[Plan], Plan], masks: Collection[str]) -> list[Plan]:
    """Some of the calls with their inputs as the code uses them."""
    used = [as_used(each, renamed, masks) for each in (*seeds[:SEEDS:3], *seeds[-1:])]
    return [each for at, each in enumerate(used) if each is not None and each not in used[:at]]


def _stands(plan: Plan, wish: Wish) -> bool:
    """Whether what the person said is as it was said."""
    if wish.numbers and wish.numbers.sizes(plan) is None:
        return False
    return all(_is_as_said(plan.call.get(name), value) for name, value in wish.call.items()) and all(
        plan.init.get(name) == value for name, value in wish.init.items()
    )


def _is_as_said(value: Any, said: Any) -> bool:
    """Whether an argument is what the person said; the width of an input is what the code takes."""
    if isinstance(value, list) and isinstance(said, list) and len(value) == len(said) > 1:
        return value[:-1] == said[:-1]
    return bool(value == said)


def _as_it_is(plan: Plan) -> Plan:
    """A plan that says of itself whether keys have a length of their own."""
    bound = {symbol.name for symbol in plan.symbols if symbol.equals}
    is_cross = "S" in spoken(list(plan.call.values())) and "S" not in bound
    return replace(plan, setting="cross" if is_cross else "self")


def _failed(plan: Plan) -> _Failed | None:
    """How a plan fails with the first sizes that it fails with; None: it runs."""
    for probe in range(-1, PROBES):
        options: dict[str, Any] = {}
        sizes: Mapping[str, int] = {}
        origins = Origins()
        with quiet(), origins:
            try:
                sizes = plan.sizes(probe)
                if any(_count(value, sizes) > LARGEST // 10 for value in plan.call.values() if isinstance(value, list)):
                    raise TimeoutError
                target = in_single(plan.build(sizes), plan)
                args, options = plan.arguments(sizes)
                origins.begin(options)
                begun = spent()
                target(*args, **options)
                if spent() - begun > SLOW:
                    raise TimeoutError
            except Exception as error:  # noqa: BLE001  whatever it is, it tells what to try next
                return _Failed(error, sizes, options, origins)
    return None


def _count(shape: Sequence[Any], sizes: Mapping[str, int]) -> int:
    return prod(evaluated(str(size), sizes) for size in shape)
