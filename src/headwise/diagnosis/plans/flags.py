"""Flags: plans with a flag on that is off by default, which changes who sees whom or how scores become weights."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple

import torch

from headwise.calls import Plan, callee, init_role, mask_arguments, parameters, read, written
from headwise.dataflow import Run, attentions, run
from headwise.diagnosis.checks.causal import order_suspects
from headwise.diagnosis.checks.visible_pairs import pattern_of
from headwise.diagnosis.plans.small_sizes import small
from headwise.source import is_installed

__all__ = ["NUMBERED", "causal_plans", "is_option", "switched_plans", "turned_on"]

# flags that are tried besides those that ask to look back
MOST = 4
# what is wrong whatever a flag is for: not how tokens lie, nor a scale, which it may change on purpose
SHOWN = frozenset({
    "causal-inverted", "scale-floor-division", "scale-inverted", "scale-after-softmax", "scale-twice", "softmax-axis",
    "windows-misplaced", "windows-wrapped", "causal-zeroed",
})  # fmt: skip
# and where a number is larger, for which tokens and heads lie as they do
NUMBERED = frozenset({"tokens-regrouped", "batch-length-confused", "heads-batch-swapped"})
# what a flag may be for, by itself: to share out weights over the queries, to look ahead
CHOSEN = frozenset({"causal-inverted", "softmax-axis"})
# a flag that says that what comes later is hidden, and one that says that it is what comes before
BACK = re.compile(r"causal|auto_?reg|one_?way|uni_?dir|decod|mask|hide|ltr|left_to")
AHEAD = re.compile(r"past|prev|rev|before|ahead$|anti|backward|newest|right_to|rtl")
# what is wrong where a flag only chooses whether torch computes the same
SAME = SHOWN | {"causal-missing", "causal-offset", "scale-missing", "scale-wrong", "dropout-in-eval"}
# flags that may turn the order of tokens round, or the scale off, on purpose
TURNING = re.compile(r"rev|inv|back|right|bi(dir|_|$)|scal|norm|temp|mup|drop|train|sampl|first|transpos")
# roles of numbers of heads, of which one more or less is another layer
COUNTED = ("heads", "key_heads", "head_width", "value_head_width", "width", "layers")
# the furthest that a triangle is shifted by default
FAR = 4
# tokens that a triangle which is kept has room for
ROOM = 64


def causal_plans(plans: Sequence[Plan], target: Any, files: Sequence[str]) -> list[Plan]:
    """A plan that asks to look back only, where that can be asked for and is not by default."""
    free = next((plan for plan in plans if plan.setting == "self" and not plan.mask), None)
    if free is None:
        return []
    takes_mask = bool(mask_arguments(parameters(callee(target))))
    if takes_mask and files and all(is_installed(file) for file in files):
        # what is published reads its flag where the mask is made
        return []
    ways = (replace(plan, switched=(name,)) for name, plan in _ways(free, target) if "causal" in name)
    return [each for each in ways if _ran(each, files) is not None][:1]


class Switched(NamedTuple):
    """A plan with a flag the other way round. kinds: what may be wrong with it, or none of it is told; chosen: what the
    flag may be for, which is noted.
    """

    plan: Plan
    kinds: frozenset[str]
    chosen: frozenset[str]


def switched_plans(plans: Sequence[Plan], target: Any, files: Sequence[str]) -> Iterator[Switched]:
    """Plans with a flag the other way round, each flag by itself.

    Those that are off by default count where scores are shared out in another way with them, or other keys are seen;
    those that are on, only where they choose whether torch computes the attention itself.
    """
    free = next((plan for plan in plans if plan.setting == "self" and not plan.mask), None)
    before = None if free is None else _ran(free, files)
    if free is None or before is None or (files and all(is_installed(file) for file in files)):
        return
    counted = list(_counted(free, target))
    # the shift of every other layer, then words, then numbers that are asked to be more
    shifts = [(name, plan) for name, plan in counted if type(plan.init[name]) is not int or plan.init[name] == 1]
    ways = (*_ways(free, target), *shifts, *_worded(free, target), *(way for way in counted if way not in shifts))
    others = [(name, plan) for name, plan in ways if "causal" not in name and not TURNING.search(name)]
    for name, plan in others[:MOST]:
        result = _ran(plan, files)
        if result is not None and _is_other(before, result):
            is_back = BACK.search(name) is not None and AHEAD.search(name) is None
            kinds = SHOWN | NUMBERED if (name, plan) in counted else SHOWN
            yield Switched(plan, kinds, CHOSEN - {"causal-inverted"} if is_back else CHOSEN)
    for _, plan in [*_ways(free, target, off=True), *others][: 2 * MOST]:
        result = _ran(plan, files)
        if result is not None and _is_fused(before) != _is_fused(result):
            yield Switched(plan, SAME, frozenset())


def is_option(free: Plan, files: Sequence[str], kind: str) -> bool:
    """Whether a flag or a number of a target asks for another triangle: a flag that turns time round, or without which
    all is seen, or a number that shifts it. A flag that asks to look back asks for no such thing.
    """
    target = free.target
    for name, plan in [*_ways(free, target), *_ways(free, target, off=True)]:
        if BACK.search(name) and not AHEAD.search(name):
            continue
        result = _ran(plan, files)
        patterns = [] if result is None else [pattern_of(attention) for attention in attentions(result)]
        is_open = bool(patterns) and all(pattern is not None and bool(pattern.all()) for pattern in patterns)
        if is_open or (AHEAD.search(name) and result is not None and patterns and not _has(result, kind)):
            return True
    for plan in _shifted(free, target):
        result = _ran(plan, files)
        if result is not None and attentions(result) and not _has(result, kind):
            return True
    return False


def _has(result: Run, kind: str) -> bool:
    return any(suspect.general == kind for suspect in order_suspects(result))


def _shifted(free: Plan, target: Any) -> Iterator[Plan]:
    """Plans with a small whole number that is no size one more or one less, of the constructor and then of the call."""
    for parameter in parameters(target) if isinstance(target, type) else []:
        if _is_shift(parameter) and parameter.name not in free.init:
            yield from (replace(free, init={**free.init, parameter.name: parameter.default + by}) for by in (1, -1))
    for parameter in parameters(callee(target)):
        if _is_shift(parameter) and parameter.name not in free.call:
            yield from (replace(free, call={**free.call, parameter.name: parameter.default + by}) for by in (1, -1))


def _is_shift(parameter: inspect.Parameter) -> bool:
    return type(parameter.default) is int and abs(parameter.default) <= FAR and init_role(parameter.name) not in COUNTED


def _ways(free: Plan, target: Any, *, off: bool = False) -> Iterator[tuple[str, Plan]]:
    """A plan for each flag that is off, of the constructor and then of the call, with it on, and with a length where it
    asks for one. off: for each that is on, with it off.
    """
    built = parameters(target) if isinstance(target, type) else []
    lengths = {each.name: ROOM for each in built if each.default is None and init_role(each.name) == "length"}
    lengths = {name: size for name, size in lengths.items() if name not in free.init}
    for parameter in built:
        if parameter.default is off and parameter.name not in free.init:
            yield parameter.name, replace(free, init={**free.init, parameter.name: not off})
            if lengths and not off:
                yield parameter.name, replace(free, init={**free.init, **lengths, parameter.name: True})
    for parameter in parameters(callee(target)):
        if parameter.default is off and parameter.name not in free.call:
            yield parameter.name, replace(free, call={**free.call, parameter.name: not off})


def turned_on(free: Plan, target: Any) -> Iterator[tuple[str, Plan]]:
    """A plan for each of the first flags that are off, with it on."""
    yield from islice(_ways(free, target), MOST)


def _counted(free: Plan, target: Any) -> Iterator[tuple[str, Plan]]:
    """A plan for each number of the constructor that is 0, as the shift of windows in every other layer, one or one for
    each side, or that the code asks to be more than it is, as in `ratio > 1`, with 1 more.
    """
    built = parameters(target) if isinstance(target, type) else []
    numbers = {each.name: each.default for each in built if type(each.default) is int and each.name not in free.init}
    asked = _more_than(target, free) if numbers else set[tuple[str, int]]()
    for name, number in numbers.items():
        if number == 0 or (name, number) in asked:
            yield name, replace(free, init={**free.init, name: number + 1})
    sided = [param for param in built if isinstance(param.default, tuple | list) and param.name not in free.init]
    for param in sided:
        if param.default and all(type(number) is int and number == 0 for number in param.default):
            yield param.name, replace(free, init={**free.init, param.name: {"_tuple": [1] * len(param.default)}})


def _more_than(target: Any, free: Plan) -> set[tuple[str, int]]:
    """Which names the code asks to be more than which number, or another one."""
    out: set[tuple[str, int]] = set()
    for _, tree in written(target, free.namespace):
        for node in ast.walk(tree):
            if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Gt | ast.NotEq):
                number = getattr(node.comparators[0], "value", None)
                name = getattr(node.left, "attr", getattr(node.left, "id", ""))
                out |= {(name, number)} if type(number) is int and name else set()
    return out


def _worded(free: Plan, target: Any) -> Iterator[tuple[str, Plan]]:
    """A plan for each word that the code compares an argument of the constructor with and that is not its default, as
    of `partition == "grid"`.
    """
    built = parameters(target) if isinstance(target, type) else []
    words = {param.name: param for param in built if isinstance(param.default, str) and param.name not in free.init}
    choices = read(target, free.namespace).choices if words else {}
    for name, param in words.items():
        for word in (each for each in choices.get(name, ()) if each != param.default):
            yield f"{name} {word}", replace(free, init={**free.init, name: {"_expr": repr(word)}})


def _ran(plan: Plan, files: Sequence[str]) -> Run | None:
    result = run(plan, sizes=small(plan), own=tuple(files))
    return result if result.failure is None else None


def _is_fused(result: Run) -> bool:
    return any(attention.fused for attention in attentions(result))


def _is_other(before: Run, result: Run) -> bool:
    """Whether the same scores are shared out in another way, or other keys are seen, or more or fewer of them."""
    for a, b in zip(attentions(before), attentions(result), strict=False):
        patterns = pattern_of(a), pattern_of(b)
        if (patterns[0] is None) != (patterns[1] is None):
            # heads or samples see others than each other
            return True
        for mine, second in (patterns, (a.weights, b.weights)):
            if mine is not None and second is not None and not torch.equal(mine, second):
                return True
    return False
