"""Error repairs: what the error of a call, and the place of it, tell of how the call should have been."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

from torch import Tensor

from headwise.calls import layouts, size_relations
from headwise.calls.argument_axes import last
from headwise.calls.failed_statement import FailedStatement
from headwise.calls.fixed_arguments import FIXED
from headwise.calls.layouts import Family
from headwise.calls.mask_forms import declared_shapes, masks, visible
from headwise.calls.plan import Plan
from headwise.calls.roles import call_role, init_role
from headwise.calls.size_relations import batched, bound_to, free_of, grouped, multiples, narrowed, reshaped, tied
from headwise.calls.source_hints import Reading
from headwise.calls.symbols import spoken

__all__ = ["lessons"]

# something else than a tensor came
TYPE = re.compile(
    r"'(int|float|bool|NoneType|str|tuple|dict)' object|must be Tensor, not|unsupported operand type|bad operand type"
    r"|invalid combination of arguments|only be converted to Python scalars|got \(?(int|NoneType|float|bool|str)"
)
# how many axes were needed, and how many came
RANKS = (
    re.compile(r"expected (?P<need>\d+) dims\. Received (?P<have>\d+)-dim"),
    re.compile(r"input\.dim\(\) = (?P<have>\d+) is not equal to len\(dims\) = (?P<need>\d+)"),
    re.compile(r"expected (?P<need>\d)D input \(got (?P<have>\d)D"),
    re.compile(r"or (?P<need>\d)D \(batched\) input to conv"),
    re.compile(r"must be a (?P<need>\d)D tensor"),
    re.compile(r"the equation \((?P<need>\d+)\) does not match the number of dimensions \((?P<have>\d+)\)"),
    re.compile(r"but expected (?P<need>\d)-dim"),
)
FEWER = re.compile(r"too many indices for tensor of dimension (\d+)|Dimension out of range")
PLACED = re.compile(r"takes (\d+) positional arguments but \d+ were given")
NONE = re.compile(r"Value after \* must be an iterable|cannot unpack non-iterable")
UNPACKED = re.compile(r"(?:not enough|too many) values to unpack")
IDS = re.compile(r"used as indices must be|arguments? .*indices.* (?:Long|scalar types)|indices must be long", re.I)
KERNEL = re.compile(r"Kernel size: \((\d+) x (\d+)\)\. Kernel size can't be greater")
SHAPE = re.compile(r"shape '\[([-\d, ]+)\]' is invalid for input of size (\d+)")
CHUNKS = re.compile(r"can't divide axis of length (\d+) in chunks of (\d+)")
SIZES = re.compile(
    r"must match|must (?:be )?equal|Expected size|should be the same|doesn't match|does not match|Wrong shape"
    r"|Shape mismatch|not broadcast|size mismatch|cannot be multiplied|Incompatible"
)
# so many masks are tried for one argument
MASKS = 14
OTHERS = ("h", "w", "t", "N", "n", "M")
# what token numbers of the smallest table are below
SMALLEST = "2"
BEYOND = re.compile(r"index out of range in self")
MANY = {5: ("n", "h", "w"), 6: ("n", "m", "h", "w")}
STACKED = re.compile(r"stack expects each tensor to be equal size")
EVEN = re.compile(r"divisible by 2\b|must be even|even number", re.IGNORECASE)


def lessons(
    plan: Plan, error: BaseException, at: FailedStatement, sizes: Mapping[str, int], reading: Reading
) -> Iterator[Plan]:
    """The plans that an error suggests, the likeliest first."""
    text = str(error)
    if TYPE.search(text):
        yield from _as_tensors(plan, at, reading)
    if UNPACKED.search(text) or PLACED.search(text) or NONE.search(text):
        yield from _as_pairs(plan, text, at)
    if EVEN.search(text):
        yield _evened(plan)
    if IDS.search(text):
        yield from _as_numbers(plan, at)
    if BEYOND.search(text):
        yield from _as_fewer_numbers(plan, at)
    yield from size_relations.lengthened(plan, text, sizes)
    if FEWER.search(text):
        yield from batched(plan)
    if UNPACKED.search(text) or FEWER.search(text) or any(each.search(text) for each in RANKS):
        yield from _of_rank(plan, text, at)
    if match := KERNEL.search(text):
        larger = {"h": f"n+{match[1]}", "w": f"t+{match[2]}"}
        yield bound_to(plan, {name: each for name, each in larger.items() if name in free_of(plan)})
    if match := CHUNKS.search(text):
        yield from multiples(plan, int(match[1]), int(match[2]), sizes)
    if match := SHAPE.search(text):
        shape = [int(each) for each in match[1].split(",")]
        yield from narrowed(plan, shape, sizes)
        yield from reshaped(plan, shape, int(match[2]), sizes)
    if SIZES.search(text):
        numbers = [int(each) for each in re.findall(r"\d+", text)]
        yield from narrowed(plan, numbers, sizes)
        yield from tied(plan, numbers, sizes)
        yield from _of_pairs(plan)
        yield from grouped(plan)
        yield from size_relations.divided(plan, numbers)
    if STACKED.search(text):
        yield from size_relations.divided(plan, [int(each) for each in re.findall(r"\d+", text)])


def _as_pairs(plan: Plan, text: str, at: FailedStatement) -> Iterator[Plan]:
    """An argument that is unpacked into two, as the cosines and sines of places are: `cos, sin = angles`, or in a call
    that takes two more, `rotate(q, *angles)`.
    """
    for node in ast.walk(at.statement):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):
            is_pair, unpacked = len(node.targets[0].elts) == 2, node.value
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[-1], ast.Starred):
            match, unpacked = PLACED.search(text), node.args[-1].value
            is_pair = match is None or int(match[1]) == len(node.args) + 1
        else:
            continue
        value = at.names.get(unpacked.id) if isinstance(unpacked, ast.Name) else ()
        for name in at.arguments if is_pair and not isinstance(value, tuple) else ():
            if at.options[name] is value:
                yield from (replace(plan, call={**plan.call, name: each}) for each in FIXED["cosine_sine"])


def _as_fewer_numbers(plan: Plan, at: FailedStatement) -> Iterator[Plan]:
    """With token numbers that a smaller table has: all that the statement names, or one of them."""
    named = [name for name in at.arguments or plan.call if isinstance(plan.call.get(name), Mapping)]
    larger = [name for name in named if plan.call[name].get("below", SMALLEST) != SMALLEST]
    for names in dict.fromkeys([tuple(larger[-1:]), tuple(larger)]):
        yield replace(plan, call={**plan.call, **{name: {**plan.call[name], "below": SMALLEST} for name in names}})


def _as_tensors(plan: Plan, at: FailedStatement, reading: Reading) -> Iterator[Plan]:
    """An argument that was no tensor as a mask, lengths, or an input like the first."""
    plain = [name for name, value in at.options.items() if not isinstance(value, Tensor)]
    first = next((value for value in plan.call.values() if isinstance(value, list)), ["B", "L", "D"])
    named = [name for name in at.arguments if name in plain] or plain
    ways = [list(_as_tensor(plan, name, first, reading)) for name in named]
    # one way of each argument, then the next of each
    yield from (each for row in zip_longest(*ways) for each in row if each is not None)


def _as_tensor(plan: Plan, name: str, first: Sequence[Any], reading: Reading) -> Iterator[Plan]:
    rest = {key: value for key, value in plan.call.items() if key not in (name, "_mask")}
    role, keys = call_role(name), _keys(plan)
    if role == "bias":
        yield from (replace(plan, call={**plan.call, name: ["B", heads, "L", keys]}) for heads in ("H", "1"))
    if role in ("mask", "lengths", "bias") and not plan.mask:
        among = [each for each, _ in zip(masks(name, reading, keys=keys), range(MASKS), strict=False)]
        yield from (replace(plan, call={**rest, "_mask": dict(each)}, mask=name) for each in among)
    elif role in ("mask", "lengths") and plan.mask != name and keys in plan.call["_mask"]["shape"]:
        # beside the one that hides keys, whose meaning it has
        means = plan.call["_mask"]["means"]
        for shape in declared_shapes(name, means, keys=keys)[:MASKS]:
            yield replace(plan, call={**plan.call, name: visible(shape, {"means": means})})
    shapes = [[("S" if axis == "L" else axis) for axis in first], first, first[:-1], ["B"], ["L", "L"]]
    yield from (replace(plan, call={**plan.call, name: shape}) for shape in shapes if shape)


def _of_pairs(plan: Plan) -> Iterator[Plan]:
    """An input with a width of its own that may hold something for each pair of tokens."""
    first, *others = [name for name, value in plan.call.items() if isinstance(value, list)] or [""]
    for name in others:
        shape = plan.call[name]
        symbols = [each for each in spoken(shape[-1:]) if each not in spoken([plan.call[first], ["H", "d", "dv"]])]
        if symbols and len(shape) == len(layouts.PACKED.query):
            yield replace(plan, call={**plan.call, name: ["B", "L", _keys(plan), shape[-1]]})


def _evened(plan: Plan) -> Plan:
    """A plan whose widths are all even, whatever they are of."""
    built = set(spoken(list(plan.init.values())))
    wide = ("parameter", "head_width", "value_width", "width")
    return replace(
        plan,
        symbols=tuple(
            replace(symbol, even=True)
            if symbol.name in built and symbol.meaning in wide and not symbol.equals
            else symbol
            for symbol in plan.symbols
        ),
    )


def _keys(plan: Plan) -> str:
    return "S" if "S" in spoken(list(plan.call.values())) else "L"


def _as_numbers(plan: Plan, at: FailedStatement) -> Iterator[Plan]:
    """An argument that was looked up with as whole numbers."""
    inputs = [name for name, value in plan.call.items() if isinstance(value, list)]
    for name in [each for each in at.arguments if each in inputs] or inputs[::-1]:
        shape = plan.call[name]
        for axes in (shape, shape[:-1], ["L", "L"]):
            yield replace(plan, call={**plan.call, name: {"_ids": axes, "below": SMALLEST}})


def _of_rank(plan: Plan, text: str, at: FailedStatement) -> Iterator[Plan]:
    """Inputs with as many axes as were needed."""
    inputs = {name: value for name, value in plan.call.items() if isinstance(value, list)}
    named = [name for name in at.arguments if name in inputs]
    need, have, order = _needed(text, at)
    exact = [name for name, value in inputs.items() if not have or len(value) == have]
    for name in named or exact or [*inputs]:
        ranks = [need] if need else [len(inputs[name]) + 1, len(inputs[name]) - 1]
        if have and name not in exact:
            # what was made of it has axes more or fewer
            ranks = [len(inputs[name]) + need - have]
        for rank in (each for each in ranks if 0 < each <= len(OTHERS) and each != len(inputs[name])):
            for family in _families(rank, order):
                like = [each for each in inputs if len(inputs[each]) == len(inputs[name])]
                yield _laid_out(plan, {name: family.query}, family)
                if len(like) > 1:
                    yield _laid_out(
                        plan, {each: family.query if each == like[0] else family.key for each in like}, family
                    )


def _laid_out(plan: Plan, shapes: Mapping[str, Sequence[str]], family: Family) -> Plan:
    """A plan with inputs of other shapes; the width stays what it was called."""
    call = dict(plan.call)
    for name, shape in shapes.items():
        width = str(plan.call[name][-1])
        axes = [width if axis == "D" else axis for axis in shape]
        call[name] = axes if plan.setting == "cross" else [("L" if axis == "S" else axis) for axis in axes]
    return replace(plan, call={**call, "_layout": family.layout})


def _needed(text: str, at: FailedStatement) -> tuple[int, int, Sequence[str]]:
    """How many axes were needed and came, and what they are called where they are unpacked; 0: that is not known."""
    for pattern in RANKS:
        if match := pattern.search(text):
            return int(match["need"]), int(match.groupdict().get("have") or 0), ()
    statement = at.statement
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Tuple) and UNPACKED.search(text):
        names = [last(each) for each in statement.targets[0].elts]
        # `*x.shape, self.heads`: what stands beside the shape is no axis
        beside = len(statement.value.elts) - 1 if isinstance(statement.value, ast.Tuple) else 0
        return len(names) - beside, 0, names[: len(names) - beside]
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
