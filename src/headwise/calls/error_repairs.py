"""Error repairs: what the error of a call, and the place of it, tell of how the call should have been."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

from torch import Tensor

from headwise.calls import layouts
from headwise.calls.angle_repairs import narrowed
from headwise.calls.failed_statement import FailedStatement
from headwise.calls.fixed_arguments import FIXED
from headwise.calls.length_relations import covered_sides, lengthened, multiples
from headwise.calls.mask_forms import declared_shapes, masks, visible
from headwise.calls.plan import Plan
from headwise.calls.rank_repairs import UNPACKED, axes_of, numbered, ranked
from headwise.calls.roles import call_role
from headwise.calls.size_relations import divided, grouped, reshaped, squared, tied
from headwise.calls.source_hints import Reading
from headwise.calls.symbols import spoken
from headwise.calls.width_repairs import recounted

__all__ = ["lessons"]

# something else than a tensor came
TYPE = re.compile(
    r"'(int|float|bool|NoneType|str|tuple|dict)' object|must be Tensor, not|unsupported operand type|bad operand type"
    r"|invalid combination of arguments|only be converted to Python scalars|got \(?(int|NoneType|float|bool|str)"
)
PLACED = re.compile(r"takes (\d+) positional arguments but \d+ were given")
NONE = re.compile(r"Value after \* must be an iterable|cannot unpack non-iterable")
IDS = re.compile(
    r"used as indices must be|requires an integer input|arguments? .*indices.* (?:Long|scalar types)"
    r"|indices must be long", re.I,
)  # fmt: skip
KERNEL = re.compile(r"Kernel size: \((\d+) x (\d+)\)\. Kernel size can't be greater")
SHAPE = re.compile(r"shape '\[([-\d, ]+)\]' is invalid for input of size (\d+)")
CHUNKS = re.compile(r"can't divide axis of length (\d+) in chunks of (\d+)")
SIZES = re.compile(
    r"must match|must (?:be )?equal|Expected size|should be the same|doesn't match|does not match|Wrong shape"
    r"|Shape mismatch|not broadcast|size mismatch|cannot be multiplied|Incompatible"
)
# what is cut into parts of given sizes, and their sizes
PARTED = re.compile(r"sum exactly to (\d+) .*split_sizes=\[([\d, ]+)\]")
# what a product of two even sizes is divided by
HALVES = (2, 4)
# so many masks are tried for one argument
MASKS = 14
# what token numbers of the smallest table are below
SMALLEST = "2"
TRUTHS = re.compile(r"integer and Boolean-type|boolean masks?\b|to be a boolean tensor")
WHOLE = re.compile(r"must have the same dtype, but got (?:Long|Int) and Float|dtype Float but (?:got|found) Long")
BEYOND = re.compile(r"index out of range in self")
STACKED = re.compile(r"stack expects each tensor to be equal size")
# halves of heads whose features are turned in pairs
TWICE_EVEN = 4
EVEN = re.compile(r"divisible by 2\b|must be even|even number", re.IGNORECASE)


def lessons(
    plan: Plan, error: BaseException, at: FailedStatement, sizes: Mapping[str, int], reading: Reading
) -> Iterator[Plan]:
    """The plans that an error suggests, the likeliest first."""
    text = str(error)
    if (TYPE.search(text) and "NoneType" in text) or _asks_for_something(at):
        yield from _given(plan, at, reading)
    if TYPE.search(text):
        yield from _as_tensors(plan, at, reading)
    if UNPACKED.search(text) or PLACED.search(text) or NONE.search(text):
        yield from _as_pairs(plan, text, at)
    if EVEN.search(text):
        yield _evened(plan)
    if IDS.search(text):
        yield from _as_numbers(plan, at)
    if WHOLE.search(text):
        yield from _as_features(plan, at)
    if TRUTHS.search(text):
        yield from _as_truths(plan, at)
    if BEYOND.search(text):
        yield from _as_fewer_numbers(plan, at)
    yield from lengthened(plan, text, sizes)
    yield from ranked(plan, text, at)
    if match := KERNEL.search(text):
        yield from covered_sides(plan, int(match[1]), int(match[2]))
    if match := CHUNKS.search(text):
        yield from multiples(plan, int(match[1]), int(match[2]), sizes)
    if match := SHAPE.search(text):
        shape = [int(word) for word in match[1].split(",")]
        yield from narrowed(plan, shape, sizes)
        yield from reshaped(plan, shape, int(match[2]), sizes)
    if match := PARTED.search(text):
        yield from tied(plan, [int(match[1]), sum(map(int, match[2].split(",")))], sizes)
    numbers = [int(word) for word in re.findall(r"\d+", text)]
    if SIZES.search(text):
        yield from narrowed(plan, numbers, sizes)
        yield from recounted(plan, numbers, sizes)
        yield from tied(plan, numbers, sizes)
        yield from _of_pairs(plan)
        yield from grouped(plan)
        yield from divided(plan, numbers)
        if len(numbers) > 1 and abs(numbers[0] - numbers[1]) == 1:
            # the halves of an odd number
            yield _evened(plan)
    for have, need, is_divided in at.compared if isinstance(error, AssertionError | ValueError) else ():
        if is_divided and need in HALVES:
            yield _evened(plan)
        yield from multiples(plan, have, need, sizes) if is_divided else tied(plan, [have, need], sizes)
    if STACKED.search(text):
        yield from divided(plan, numbers)
    if SIZES.search(text):
        yield from squared(plan, numbers, sizes)


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


def _given(plan: Plan, at: FailedStatement, reading: Reading) -> Iterator[Plan]:
    """An argument that may be left out, where something must be given for it: like the first input."""
    first = next((value for value in plan.call.values() if axes_of(value) is not None), ["B", "L", "D"])
    for name in at.left_out:
        if name not in plan.call and _role(name, reading) not in ("mask", "lengths", "bias", "cache"):
            yield replace(plan, call={**plan.call, name: first})


def _asks_for_something(at: FailedStatement) -> bool:
    """Whether an assertion asks that something is not None."""
    tests = ast.walk(at.statement.test) if isinstance(at.statement, ast.Assert) else ()
    return any(isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.IsNot) for node in tests)


def _role(name: str, reading: Reading) -> str:
    """What an argument is for by its name, or else by what the code does with it."""
    return call_role(name) or ("mask" if name in reading.means else "")


def _as_tensor(plan: Plan, name: str, first: Sequence[Any], reading: Reading) -> Iterator[Plan]:
    rest = {key: value for key, value in plan.call.items() if key not in (name, "_mask")}
    role, keys = _role(name, reading), _keys(plan)
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
    # what a mask holds is no number of any size
    shapes = [[("S" if axis == "L" else axis) for axis in first], first, first[:-1], ["B"], ["L", "L"]]
    yield from () if role == "mask" else (replace(plan, call={**plan.call, name: shape}) for shape in shapes if shape)


def _of_pairs(plan: Plan) -> Iterator[Plan]:
    """An input with a width of its own that may hold something for each pair of tokens."""
    first, *others = [name for name, value in plan.call.items() if isinstance(value, list)] or [""]
    for name in others:
        shape = plan.call[name]
        symbols = [each for each in spoken(shape[-1:]) if each not in spoken([plan.call[first], ["H", "d", "dv"]])]
        if symbols and len(shape) == len(layouts.PACKED.query):
            yield replace(plan, call={**plan.call, name: ["B", "L", _keys(plan), shape[-1]]})


def _evened(plan: Plan) -> Plan:
    """A plan whose widths are all even, whatever they are of; multiples of 4, where they are even already."""
    built = set(spoken(list(plan.init.values())))
    wide = ("parameter", "head_width", "value_width", "width")
    return replace(
        plan,
        symbols=tuple(
            replace(symbol, even=True, times=TWICE_EVEN if symbol.even and symbol.times == 1 else symbol.times)
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
    behind = [name for name in at.behind if name in inputs]
    for names in dict.fromkeys([tuple(behind), *((name,) for name in behind or inputs[::-1])]):
        counted = {name: {"_ids": plan.call[name], "below": SMALLEST} for name in names}
        ranks = {len(plan.call[name]) for name in names}
        for rank in (each - less for less in (1, 0) for each in ranks if each > less):
            yield from numbered(replace(plan, call={**plan.call, **counted}), names, rank)
        yield from (replace(plan, call={**plan.call, name: {**counted[name], "_ids": ["L", "L"]}}) for name in names)


def _as_features(plan: Plan, at: FailedStatement) -> Iterator[Plan]:
    """An argument of whole numbers, which a layer of weights was given, as features."""
    for name in at.behind or at.arguments:
        value = plan.call.get(name)
        if isinstance(value, Mapping) and "_ids" in value and "dtype" not in value:
            for shape in ([*value["_ids"], "D"], [*value["_ids"][:-1], "D"]):
                yield replace(plan, call={**plan.call, name: shape})


def _as_truths(plan: Plan, at: FailedStatement) -> Iterator[Plan]:
    """An argument that is true or false of each token, or of each sample."""
    for name in at.behind or at.arguments:
        shape = plan.call.get(name)
        if isinstance(shape, list) and call_role(name) != "mask":
            for axes in (shape[:-1], shape) if len(shape) > 1 else (shape,):
                truths = {"_ids": axes, "below": SMALLEST, "dtype": "bool"}
                yield replace(plan, call={**plan.call, name: truths})
