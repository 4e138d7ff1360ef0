"""Size relations: which sizes an error says to be equal, multiples or halves of each other."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import prod
from typing import Any

from torch import nn

from headwise.calls.plan import Named, Plan, evaluated
from headwise.calls.roles import call_role, init_role
from headwise.calls.signature import parameters
from headwise.calls.symbols import LEGEND, PLACES, bases, layout_of, spoken

__all__ = [
    "batched", "bound_to", "divided", "free_of", "grouped", "lengthened", "multiples", "narrowed", "reshaped",
    "squared", "tied",
]  # fmt: skip

# an entry that an axis does not have
PAST = re.compile(r"index (\d+) is out of bounds for dimension \d+ with size (\d+)")
ANGLED = frozenset({"cosine", "sine", "cosine_sine", "frequencies"})
# the share of a head that is turned
SHARES = (2, 4, 8)
# sines and cosines of two directions are in as many parts
PARTS = 4
# so many tokens stand beside those of an image
BESIDE = 16


def reshaped(plan: Plan, shape: Sequence[int], count: int, sizes: Mapping[str, int]) -> Iterator[Plan]:
    """What makes as many numbers come as the shape has room for."""
    free, inputs = free_of(plan), _inputs(plan)
    built = [name for name, place in free.items() if place.meaning == "parameter" and name not in inputs]
    if 0 in shape:
        # as many windows as fit into less than one
        for window in (size for size in dict.fromkeys(shape) if size > 1 and shape.count(size) > 1):
            for name in (symbol for symbol in free if symbol in inputs and 1 < sizes[symbol] < window):
                yield from multiples(plan, sizes[name], window, sizes)
        yield from _strided(plan, sizes)
    room = prod(size for size in shape if size > 0)
    for name in (
        symbol for symbol in free if symbol in inputs and symbol != "B" and count % max(sizes[symbol], 1) == 0
    ):
        if -1 not in shape:
            wanted = [
                expression
                for expression in _expressions(built)
                if evaluated(expression, sizes) * count == room * sizes[name]
            ]
            yield from (bound_to(plan, {name: expression}) for expression in wanted)
        elif count % room:
            for size in dict.fromkeys(size for size in shape if size > 1 and count % size):
                yield from multiples(plan, sizes[name], size, sizes)
    for name in (symbol for symbol in free if symbol in inputs and symbol != "B" and -1 in shape):
        # a table of pairs is looked up with as many numbers as it has pairs
        twice = {size for size in shape if size > 1 and shape.count(size) > 1 and size != sizes[name]}
        if twice and count % sizes[name] ** 2 == 0:
            fitting = [expression for expression in _expressions(built) if evaluated(expression, sizes) in twice]
            yield from (bound_to(plan, {name: expression}) for expression in fitting)
    yield from _shared(plan, [size for size in shape if size > 0], count, sizes)
    heads = [name for name in free if free[name].meaning == "heads"]
    # what is divided by a number of the class's own has a remainder
    yield from (_times(plan, name, 2) for name in heads)
    yield from grouped(plan)


def _strided(plan: Plan, sizes: Mapping[str, int]) -> Iterator[Plan]:
    """Sides that windows divide, as so many times more as convolutions leave out."""
    sides = {s.name: s.equals for s in plan.symbols if s.name in ("h", "w") and s.equals[:2] in ("n*", "m*")}
    built = plan.build(sizes) if sides and not any("*" in equals[2:] for equals in sides.values()) else None
    layers = [each for each in built.modules() if isinstance(each, nn.Conv2d)] if isinstance(built, nn.Module) else []
    strides = [each.stride[0] for each in layers]
    # side by side, or one behind the other
    for stride in dict.fromkeys((max(strides, default=1), prod(strides))):
        if stride > 1:
            yield bound_to(plan, {name: f"{equals}*{stride}" for name, equals in sides.items()})


def lengthened(plan: Plan, text: str, sizes: Mapping[str, int]) -> Iterator[Plan]:
    """Plans in which a length has the entries that an error asks of it."""
    if (match := PAST.search(text)) is None:
        return
    for name in (symbol for symbol in free_of(plan) if symbol in _inputs(plan) and symbol != "B"):
        if sizes[name] == int(match[2]):
            longer = (replace(s, least=int(match[1]) + 1) if s.name == name else s for s in plan.symbols)
            yield replace(plan, symbols=tuple(longer))


def tied(plan: Plan, numbers: Sequence[int], sizes: Mapping[str, int]) -> Iterator[Plan]:
    """What was of one size and should have been of another, bound to it: lengths of inputs and of what is built.

    Nothing is bound to a number of heads or a width: what fails until these are lengths is wrong, not called wrong.
    """
    inputs = [name for name in free_of(plan) if name in _inputs(plan) and name != "B"]
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
    for symbol in (each for each in plan.symbols if each.equals and each.name in _inputs(plan)):
        # beside the tokens of an image stand those of the class, and registers
        more = [number - sizes[symbol.name] for number in numbers if sizes[symbol.name] in numbers]
        yield from (bound_to(plan, {symbol.name: f"{symbol.equals}+{each}"}) for each in more if 0 < each <= BESIDE)
    for name in (symbol for symbol in [*inputs, *built] if sizes[symbol] in numbers):
        for expression in _expressions([*(built if name in inputs else inputs)]):
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
        if is_met and a != b and {a, b} <= free_of(plan).keys() & _inputs(plan):
            call = {**plan.call, name: [batch, "L", "L", width], **layout_of([batch, "L", "L", width])}
            yield replace(plan, call=call)


def _counts(plan: Plan) -> set[int]:
    """How many entries the lists of sizes have that a class is built with, and tokens an image of these sizes, with a
    class token or without; and the lengths that it has by default.
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
    return {len(value) for value in (*given, *defaults)} | lengths | areas


def multiples(plan: Plan, have: int, factor: int, sizes: Mapping[str, int]) -> Iterator[Plan]:
    """The length of an input that must be divided by something, as a multiple of it; both sides of an image at once."""
    free, inputs = free_of(plan), _inputs(plan)
    built = [name for name, place in free.items() if place.meaning == "parameter" and name not in inputs]
    divisor = next((expression for expression in _expressions(built) if evaluated(expression, sizes) == factor), "")
    # windows of an image are small: it has as many tokens as their squares
    small = tuple(replace(s, is_small=True) if s.name == divisor else s for s in plan.symbols)
    for name in (symbol for symbol in free if sizes[symbol] == have and symbol in inputs and divisor):
        images = {"h": f"n*({divisor})", "w": f"m*({divisor})"}
        if name in images and set(images) <= set(free):
            yield bound_to(replace(plan, symbols=small), images)
        else:
            yield bound_to(plan, {name: f"n*({divisor})"})


def divided(plan: Plan, numbers: Sequence[int]) -> Iterator[Plan]:
    """Widths that are shared out in equal parts, where two sizes differ by what was left over."""
    large = sorted(number for number in set(numbers) if number > PARTS**2)
    if any(0 < b - a < PARTS for a, b in pairwise(large)):
        widths = {name: place for name, place in free_of(plan).items() if place.meaning in ("width", "head_width")}
        yield from (_times(plan, name, PARTS) for name, place in widths.items() if place.times == 1)


def grouped(plan: Plan) -> Iterator[Plan]:
    """The numbers of heads as multiples of what else the class is built with."""
    free, inputs = free_of(plan), _inputs(plan)
    heads = [name for name in free if free[name].meaning == "heads"]
    others = [name for name, place in free.items() if place.meaning == "parameter" and name not in inputs]
    others = [name for name in others if not free[name].least and not free[name].is_small]
    yield from (bound_to(plan, {a: f"g*{b}"}) for a in heads for b in others)


def _shared(plan: Plan, shape: Sequence[int], count: int, sizes: Mapping[str, int]) -> Iterator[Plan]:
    """A width that was shared out to heads which do not divide it, as a multiple of them."""
    free = free_of(plan)
    lengths = {sizes[name] for name in _inputs(plan)}
    built = set(spoken(list(plan.init.values()))) - {"H", "d"}
    for wide in (name for name in free if name in built and sizes[name] and count % sizes[name] == 0):
        parts = [k for k in shape if k > 1 and sizes[wide] % k and (sizes[wide] // k in shape or k not in lengths)]
        for part in dict.fromkeys(parts):
            heads = [name for name in free if sizes[name] == part and free[name].meaning in ("parameter", "heads")]
            heads = [name for name in heads if name != wide and name not in _inputs(plan)]
            yield from (_headed(plan, name, wide) for name in heads)
            if not heads and part < sizes[wide]:
                yield _times(plan, wide, part)


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


def _times(plan: Plan, name: str, factor: int) -> Plan:
    return replace(plan, symbols=tuple(replace(s, times=factor) if s.name == name else s for s in plan.symbols))


def _expressions(names: Sequence[str]) -> Iterator[str]:
    """What a size may be made of, the simplest first."""
    yield from names
    yield from (f"{name}{more}" for name in names for more in ("+1", "-1"))
    yield from (f"{a}*{b}" for at, a in enumerate(names) for b in names[at:])
    yield from (f"{factor}*{name}" for factor in (2, 3, 4) for name in names)


def _inputs(plan: Plan) -> set[str]:
    """The symbols of the axes of inputs that nothing is built with."""
    built = set(spoken(list(plan.init.values())))
    used = set(spoken([value for name, value in plan.call.items() if name != "_layout"])) - built
    return {symbol.name for symbol in plan.symbols} & used


def free_of(plan: Plan) -> dict[str, Named]:
    return {symbol.name: symbol for symbol in plan.symbols if not symbol.equals and symbol.fixed is None}


def bound_to(plan: Plan, bound: Mapping[str, str]) -> Plan:
    """A plan whose symbols are what they must be; what they are made of is not made of them."""
    made = {symbol.name: replace(symbol, equals=bound.get(symbol.name, symbol.equals)) for symbol in plan.symbols}
    bound = {name: size for name, size in bound.items() if not bound.keys() & bases(size, made)}
    return replace(plan, symbols=tuple(replace(s, equals=bound.get(s.name, s.equals)) for s in plan.symbols))


def narrowed(plan: Plan, numbers: Sequence[int], sizes: Mapping[str, int]) -> Iterator[Plan]:
    """The plans whose angles are as wide as what they met."""
    for name, value in plan.call.items():
        if call_role(name) in ANGLED and isinstance(value, Mapping) and "polar" in str(value.get("_expr")):
            for need in dict.fromkeys(number for number in numbers if number > 1):
                for width in _made_of(need, sizes):
                    turned = {"_expr": f"torch.polar(torch.ones(L, {width}), torch.randn(L, {width}))"}
                    yield replace(plan, call={**plan.call, name: turned})
    angles = {name: value for name, value in plan.call.items() if call_role(name) in ANGLED}
    wide = {_width(value, sizes) for value in angles.values()} & set(numbers)
    for have in wide - {0}:
        for need in (number for number in dict.fromkeys(numbers) if number != have and number > 1):
            for width in _made_of(need, sizes):
                call = {name: _ending(value, width, have, sizes) for name, value in angles.items()}
                yield replace(plan, call={**plan.call, **call})


def batched(plan: Plan) -> Iterator[Plan]:
    """The plan whose angles, as numbers of the plane, are each sample's own."""
    for name, value in plan.call.items():
        text = str(value.get("_expr")) if isinstance(value, Mapping) else ""
        if call_role(name) in ANGLED and "polar" in text and "(L," in text:
            yield replace(plan, call={**plan.call, name: {"_expr": text.replace("(L,", "(B, L,")}})


def _made_of(size: int, sizes: Mapping[str, int]) -> Iterator[str]:
    """What a width may be: one that the class is built with, a share of one, a number."""
    names = [name for name in sizes if name not in ("B", "L", "S", "H")]
    yield from (name for name in names if sizes[name] == size)
    yield from (f"{name}//{share}" for name in names for share in SHARES if sizes[name] // share == size)
    yield from (f"2*{name}" for name in names if 2 * sizes[name] == size)


def _ends(value: Any) -> list[list[str]]:
    """The shapes of angles."""
    if isinstance(value, Mapping):
        return [shape for shape in value.get("_tuple", []) if isinstance(shape, list)]
    return [value] if isinstance(value, list) else []


def _width(value: Any, sizes: Mapping[str, int]) -> int:
    return next((evaluated(shape[-1], sizes) for shape in _ends(value)), 0)


def _ending(value: Any, width: str, have: int, sizes: Mapping[str, int]) -> Any:
    """Angles of another width."""
    if not _ends(value) or _width(value, sizes) != have:
        return value
    shapes = [[*shape[:-1], width] for shape in _ends(value)]
    return {"_tuple": shapes} if isinstance(value, Mapping) else shapes[0]
