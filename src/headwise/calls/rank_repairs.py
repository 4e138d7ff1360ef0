"""Rank repairs: what an error tells of how many axes the inputs of a call should have."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from headwise.calls import layouts
from headwise.calls.angle_repairs import batched
from headwise.calls.argument_axes import last
from headwise.calls.failed_statement import FailedStatement
from headwise.calls.layouts import Family
from headwise.calls.plan import Plan
from headwise.calls.roles import init_role
from headwise.calls.symbols import layout_of, width_of

__all__ = ["UNPACKED", "axes_of", "numbered", "ranked"]

# how many axes were needed, and how many came
RANKS = (
    re.compile(r"expected (?P<need>\d+) dims\. Received (?P<have>\d+)-dim"),
    re.compile(r"input\.dim\(\) = (?P<have>\d+) is not equal to len\(dims\) = (?P<need>\d+)"),
    re.compile(r"expected (?P<need>\d)D input \(got (?P<have>\d)D"),
    re.compile(r"or (?P<need>\d)D \(batched\) input to conv"),
    re.compile(r"must be a (?P<need>\d)D tensor"),
    re.compile(r"the equation \((?P<need>\d+)\) does not match the number of dimensions \((?P<have>\d+)\)"),
    re.compile(r"but expected (?P<need>\d)-dim"),
    re.compile(r"sizes provided \((?P<need>\d+)\) must be greater or equal to the number of dim\w+.*\((?P<have>\d+)\)"),
)
# tensors that are put together have as many axes
TOGETHER = re.compile(r"same number of dimensions: got \d+ and \d+")
FEWER = re.compile(r"too many indices for tensor of dimension (\d+)|Dimension out of range")
# how many came is told where they were too few
UNPACKED = re.compile(r"(?:not enough|too many) values to unpack")
OTHERS = ("h", "w", "t", "N", "n", "M")
MANY = {5: ("n", "h", "w"), 6: ("n", "m", "h", "w")}


def ranked(plan: Plan, text: str, at: FailedStatement) -> Iterator[Plan]:
    """The plans whose inputs have the axes that an error asks for, the likeliest first."""
    if FEWER.search(text):
        yield from batched(plan)
    if TOGETHER.search(text):
        yield from _put_together(plan, at)
    if UNPACKED.search(text) or FEWER.search(text) or any(pattern.search(text) for pattern in RANKS):
        yield from _of_rank(plan, text, at)


def axes_of(value: Any) -> list[Any] | None:
    """The axes of an input, of features or of whole numbers; None: it is none."""
    axes = value.get("_ids") if isinstance(value, Mapping) else value
    return axes if isinstance(axes, list) else None


def _of_rank(plan: Plan, text: str, at: FailedStatement) -> Iterator[Plan]:
    """Inputs with as many axes as were needed."""
    inputs = {name: axes for name, value in plan.call.items() if (axes := axes_of(value)) is not None}
    need, have, order = _needed(text, at)
    named = [name for name in at.arguments or at.behind if name in inputs]
    exact = [name for name, axes in inputs.items() if not have or len(axes) == have]
    for name in named or exact or [*inputs]:
        ranks = [need] if need else [len(inputs[name]) + 1, len(inputs[name]) - 1]
        if have and need:
            # what was made of it may have axes more or fewer
            ranks = [len(inputs[name]) + need - have]
        for rank in (each for each in ranks if 0 < each <= len(OTHERS) and each != len(inputs[name])):
            if isinstance(plan.call[name], Mapping):
                yield from numbered(plan, [each for each in named if len(inputs[each]) == len(inputs[name])], rank)
                continue
            for family in _families(rank, order):
                like = [each for each in inputs if len(inputs[each]) == len(inputs[name])]
                like = [each for each in like if isinstance(plan.call[each], list)]
                yield _laid_out(plan, {name: family.query})
                if len(like) > 1:
                    yield _laid_out(plan, {each: family.query if each == like[0] else family.key for each in like})


def numbered(plan: Plan, names: Sequence[str], rank: int) -> Iterator[Plan]:
    """Whole numbers with so many axes: all of some arguments, or one."""
    shapes = [["B", *("n", "m")[: rank - 2], "L"], ["B", *["L"] * (rank - 1)]] if rank > 1 else [["B"], ["L"]]
    for shape, some in product(shapes, dict.fromkeys([tuple(names), *((name,) for name in names)])):
        numbers = {name: {**plan.call[name], "_ids": shape} for name in some if isinstance(plan.call[name], Mapping)}
        yield replace(plan, call={**plan.call, **numbers})


def _put_together(plan: Plan, at: FailedStatement) -> Iterator[Plan]:
    """Inputs with as many axes as what they are put beside."""
    ranks = [len(shape) for shape, _ in at.operands]
    for rank in dict.fromkeys(ranks):
        moved: dict[str, int] = {}
        for shape, names in at.operands:
            moved |= dict.fromkeys(names, rank - len(shape)) if len(shape) != rank else {}
        call = {name: _with_axes(plan.call[name], more) for name, more in moved.items() if axes_of(plan.call.get(name))}
        if call and all(call.values()):
            yield replace(plan, call={**plan.call, **call})


def _with_axes(value: Any, more: int) -> Any:
    """An input with axes more, or fewer; None: it has not so many."""
    axes = list(axes_of(value) or ())
    if more < 0:
        kept = axes[: len(axes) + more] if isinstance(value, Mapping) else [axes[0], *axes[1 - more :]]
    else:
        kept = [*axes[:1], *("L", "n", "m")[:more], *axes[1:]]
    if not kept or len(kept) != len(axes) + more:
        return None
    return {**value, "_ids": kept} if isinstance(value, Mapping) else kept


def _laid_out(plan: Plan, shapes: Mapping[str, Sequence[str]]) -> Plan:
    """A plan with inputs of other shapes; the width stays what it was called."""
    call = dict(plan.call)
    for name, shape in shapes.items():
        width = width_of(plan.call[name])
        axes = [width if axis == "D" else axis for axis in shape]
        call[name] = axes if plan.setting == "cross" else [("L" if axis == "S" else axis) for axis in axes]
    layout = layout_of(next((axes for axes in call.values() if isinstance(axes, list)), []))
    return replace(plan, call={**{name: value for name, value in call.items() if name != "_layout"}, **layout})


def _needed(text: str, at: FailedStatement) -> tuple[int, int, Sequence[str]]:
    """How many axes were needed and came, and what they are called where they are unpacked; 0: that is not known."""
    for pattern in RANKS:
        if match := pattern.search(text):
            need = int(match["need"])
            other = next((len(shape) for shape, names in at.operands if names and len(shape) != need), 0)
            return need, int(match.groupdict().get("have") or other), ()
    statement = at.statement
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Tuple) and UNPACKED.search(text):
        names = [last(element) for element in statement.targets[0].elts]
        # `*x.shape, self.heads`: what stands beside the shape is no axis
        beside = len(statement.value.elts) - 1 if isinstance(statement.value, ast.Tuple) else 0
        came = re.search(r", got (\d+)\)", text)
        have = max(0, int(came[1]) - beside) if came else 0
        return len(names) - beside, have, names[: len(names) - beside]
    return 0, 0, ()


def _families(rank: int, order: Sequence[str]) -> Iterator[Family]:
    """The layouts with so many axes, the one first whose axes are called as those of the code."""
    wide = next((at for at, each in enumerate(order) if init_role(each) == "width" and at), 0)
    families = [each for each in (getattr(layouts, name) for name in layouts.__all__) if isinstance(each, Family)]
    families = [each for each in families if len(each.query) == rank and "D" in each.query]
    preferred = [layouts.PACKED, layouts.IMAGE, layouts.IMAGE_LAST, layouts.STACKED, layouts.ALONE]
    families.sort(key=lambda family: preferred.index(family) if family in preferred else len(preferred))
    # what has many axes is large if all of them are long
    rest = ["B", *MANY.get(rank, OTHERS)[: rank - 2]]
    generated = [
        layouts.family("".join(axes), " ".join(axes))
        for place in dict.fromkeys((wide or rank - 1, rank - 1, 1, *([2] if rank in MANY else [])))
        for axes in [[*rest[:place], "D", *rest[place:]]]
    ]
    yield from sorted([*families, *generated], key=lambda family: bool(wide) and family.query[wide] != "D")
