"""Size relations: which sizes an error says to be equal, multiples or halves of each other."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import lcm, prod
from typing import Any

from headwise.calls.bound_symbols import bound_to, expressions_of, free_of, inputs_of, with_times
from headwise.calls.built_modules import own_numbers
from headwise.calls.length_relations import halved_sides, multiples, strided_sides
from headwise.calls.plan import Plan, evaluated
from headwise.calls.roles import init_role
from headwise.calls.signature import parameters
from headwise.calls.symbols import LEGEND, PLACES, layout_of, spoken

__all__ = ["divided", "grouped", "reshaped", "squared", "tied"]

# sines and cosines of two directions are in as many parts
PARTS = 4
# so many tokens stand beside those of an image
BESIDE = 16


def reshaped(plan: Plan, shape: Sequence[int], count: int, sizes: Mapping[str, int]) -> Iterator[Plan]:
    """What makes as many numbers come as the shape has room for."""
    free, inputs = free_of(plan), inputs_of(plan)
    built = [name for name, place in free.items() if place.meaning == "parameter" and name not in inputs]
    if 0 in shape:
        # as many windows as fit into less than one
        for window in (size for size in dict.fromkeys(shape) if size > 1 and shape.count(size) > 1):
            for name in (symbol for symbol in free if symbol in inputs and 1 < sizes[symbol] < window):
                yield from multiples(plan, sizes[name], window, sizes)
        yield from strided_sides(plan, sizes)
    room = prod(size for size in shape if size > 0)
    # pairs of tokens are as many along both axes
    squared_by = [name for name in free if name in inputs and name != "B" and shape.count(sizes[name]) > 1]
    for name in (
        symbol for symbol in free if symbol in inputs and symbol != "B" and count % max(sizes[symbol], 1) == 0
    ):
        if -1 not in shape:
            wanted = [
                expression
                for expression in (*(each for each in squared_by if each != name), *expressions_of(built))
                if evaluated(expression, sizes) * count == room * sizes[name]
            ]
            yield from (bound_to(plan, {name: expression}) for expression in wanted)
        elif count % room:
            # a width with one more is wrong, however many tokens there are
            widths = {sizes[symbol.name] + by for symbol in plan.symbols if symbol.meaning == "width" for by in (-1, 1)}
            for size in dict.fromkeys(size for size in shape if size > 1 and count % size and size not in widths):
                yield from multiples(plan, sizes[name], size, sizes)
    for name in (symbol for symbol in free if symbol in inputs and symbol != "B" and -1 in shape):
        # a table of pairs is looked up with as many numbers as it has pairs
        twice = {size for size in shape if size > 1 and shape.count(size) > 1 and size != sizes[name]}
        if twice and count % sizes[name] ** 2 == 0:
            fitting = [expression for expression in expressions_of(built) if evaluated(expression, sizes) in twice]
            yield from (bound_to(plan, {name: expression}) for expression in fitting)
    yield from _shared(plan, [size for size in shape if size > 0], count, sizes)
    heads = [name for name in free if free[name].meaning == "heads"]
    # what is divided by a number of the class's own has a remainder
    yield from (with_times(plan, name, 2) for name in heads)
    yield from grouped(plan)


def tied(plan: Plan, numbers: Sequence[int], sizes: Mapping[str, int]) -> Iterator[Plan]:
    """What was of one size and should have been of another, bound to it: lengths of inputs and of what is built.

    Nothing is bound to a number of heads or a width: what fails until these are lengths is wrong, not called wrong.
    """
    inputs = [name for name in free_of(plan) if name in inputs_of(plan) and name != "B"]
    built = [name for name, place in free_of(plan).items() if place.meaning == "parameter" and name not in inputs]
    for a, b in pairwise(inputs):
        sides = ((x, y) for x in built for y in built if sizes[x] * sizes[y] in numbers)
        yield from (bound_to(plan, {a: x, b: y}) for x, y in sides if sizes[a] * sizes[b] in numbers)
        # with a token beside those of a square
        if sizes[a] * sizes[b] + 1 in numbers:
            yield from (bound_to(plan, {a: x, b: x}) for x in built if sizes[x] ** 2 + 1 in numbers)
    for name in (symbol for symbol in inputs if sizes[symbol] in numbers):
        for count in sorted(_counts(plan) & {*numbers} - {sizes[name]}):
            # as many tokens as the class was told of columns
            yield replace(plan, symbols=tuple(replace(s, fixed=count) if s.name == name else s for s in plan.symbols))
    for symbol in (each for each in plan.symbols if each.equals and each.name in inputs_of(plan)):
        # beside the tokens of an image stand those of the class, and registers
        more = [abs(number - sizes[symbol.name]) for number in numbers if sizes[symbol.name] in numbers]
        yield from (bound_to(plan, {symbol.name: f"{symbol.equals}+{each}"}) for each in more if 0 < each <= BESIDE)
    for name in (symbol for symbol in [*inputs, *built] if sizes[symbol] in numbers):
        for expression in expressions_of([*(built if name in inputs else inputs)]):
            size = evaluated(expression, sizes)
            if size in numbers and size != sizes[name] and size > 0:
                yield bound_to(plan, {name: expression})


def squared(plan: Plan, numbers: Sequence[int], sizes: Mapping[str, int]) -> Iterator[Plan]:
    """As many rows as columns of an input that holds pairs of tokens, as where a pair is read with others of its row
    and with others of its column.
    """
    for name, shape in plan.call.items():
        if not isinstance(shape, list) or len(shape) != len("BijD"):
            continue
        batch, a, b, width = map(str, shape)
        is_met = {a, b, width} <= sizes.keys() and {sizes[a], sizes[b]} <= {*numbers} and width not in PLACES
        if is_met and a != b and {a, b} <= free_of(plan).keys() & inputs_of(plan):
            call = {**plan.call, name: [batch, "L", "L", width], **layout_of([batch, "L", "L", width])}
            yield replace(plan, call=call)


def _counts(plan: Plan) -> set[int]:
    """How many entries the lists of sizes have that a class is built with, and tokens an image of these sizes, with a
    class token or without; and the lengths that it has by default, or that a module at hand keeps.
    """
    given = [value["_tuple"] for value in plan.init.values() if isinstance(value, Mapping) and "_tuple" in value]
    given += [value for value in plan.init.values() if isinstance(value, list)]
    images = [sides for sides in given if len(sides) == len("hw") and all(type(side) is int for side in sides)]
    areas = {prod(sides) + extra for sides in images for extra in (0, 1)}
    own = parameters(plan.target) if isinstance(plan.target, type) else []
    defaults = [param.default for param in own if isinstance(param.default, tuple | list)]
    lengths = {
        param.default for param in own
        if type(param.default) is int and param.name not in plan.init and init_role(param.name) in ("length", "")
    }  # fmt: skip
    lengths |= {size for name, size in own_numbers(plan.target).items() if init_role(name) in ("length", "")}
    return {len(value) for value in (*given, *defaults)} | lengths | areas


def divided(plan: Plan, numbers: Sequence[int]) -> Iterator[Plan]:
    """Widths that are shared out in equal parts, where two sizes differ by what was left over."""
    large = sorted(number for number in set(numbers) if number > PARTS**2)
    if any(b - a == 1 for a, b in pairwise(sorted(set(numbers)))):
        yield from halved_sides(plan)
    if any(0 < b - a < PARTS for a, b in pairwise(large)):
        widths = {name: place for name, place in free_of(plan).items() if place.meaning in ("width", "head_width")}
        yield from (with_times(plan, name, PARTS) for name, place in widths.items() if place.times == 1)


def grouped(plan: Plan) -> Iterator[Plan]:
    """The numbers of heads as multiples of what else the class is built with."""
    free, inputs = free_of(plan), inputs_of(plan)
    heads = [name for name in free if free[name].meaning == "heads"]
    others = [name for name, place in free.items() if place.meaning == "parameter" and name not in inputs]
    others = [name for name in others if not free[name].least and not free[name].is_small]
    yield from (bound_to(plan, {a: f"g*{b}"}) for a in heads for b in others)


def _shared(plan: Plan, shape: Sequence[int], count: int, sizes: Mapping[str, int]) -> Iterator[Plan]:
    """A width that was shared out to heads which do not divide it, as a multiple of them."""
    free = free_of(plan)
    lengths = {sizes[name] for name in inputs_of(plan)}
    built = set(spoken(list(plan.init.values()))) - {"H", "d"}
    for wide in (name for name in free if name in built and sizes[name] and count % sizes[name] == 0):
        parts = [k for k in shape if k > 1 and sizes[wide] % k and (sizes[wide] // k in shape or k not in lengths)]
        for part in dict.fromkeys(parts):
            heads = [name for name in free if sizes[name] == part and free[name].meaning in ("parameter", "heads")]
            heads = [name for name in heads if name != wide and name not in inputs_of(plan)]
            yield from (_headed(plan, name, wide) for name in heads)
            is_further = free[wide].times > 1 and part % free[wide].times == 0
            if not heads and (part < sizes[wide] or is_further):
                yield with_times(plan, wide, lcm(part, free[wide].times))
    if {"H", "d"} <= set(free):
        # heads of its own, beside those that it was told of
        width = sizes["H"] * sizes["d"]
        for part in dict.fromkeys(k for k in shape if 1 < k < width // k and width % k and width // k in shape):
            yield with_times(plan, "d", lcm(part, free["d"].times))


def _headed(plan: Plan, heads: str, wide: str) -> Plan:
    """A plan in which one parameter is the number of heads, and another the width that they share."""
    if heads == "H" or any(symbol.name == "H" for symbol in plan.symbols):
        return bound_to(plan, {wide: f"{heads}*d"})
    init = {name: _spelled(value, heads, "H") for name, value in plan.init.items()}
    symbol = next(letter for letter in plan.symbols if letter.name == heads)
    head = replace(LEGEND["H"], said=symbol.said or heads)
    symbols = [head if letter.name == heads else letter for letter in plan.symbols]
    symbols = [replace(letter, equals="H*d") if letter.name == wide else letter for letter in symbols]
    return replace(plan, init=init, symbols=tuple(symbols))


def _spelled(value: Any, old: str, new: str) -> Any:
    """A value of `--init` with another name for a symbol; keywords are no symbols."""
    if isinstance(value, str):
        return new if value == old else value
    if isinstance(value, Mapping) and "_expr" in value:
        return {"_expr": re.sub(rf"(?<![\w.]){re.escape(old)}(?![\w=])", new, str(value["_expr"]))}
    return value
