"""Small sizes: small sizes that differ, so that a run is quick and no two axes can pass for each other."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from math import isqrt, prod

from headwise.calls import FEATURES, Named, Plan, declared_sizes, evaluated, init_role

__all__ = ["as_given", "distinct", "level", "small", "squared"]

# for sizes that bear the name of a parameter of the person's
PARAMETERS = (6, 8, 9, 10, 12, 14, 15, 16)
# numbers of the largest tensor of a run at the sizes of the person
LARGEST = 1 << 24
# a model that is wider is not built as wide as it was given
WIDEST = 2048
# as many of everything that is counted, where that is to be one number
COUNT = 6
# what must have room gets so much, or so many times the largest count
LEAST, ROOM = 27, 3
# numbers in the largest input, and what sides of windows and other axes get where they would be more
MOST, SIDES = 60_000, (5, 6, 7, 8, 9)
FEW = {"n": 2, "m": 6}
# tokens are more than a window is wide
WINDOW = 3
# the sides of windows of a volume
VOLUME = (2, 3, 4)
WORD = re.compile(r"\w+")
WANTED = {
    "batch": 4,
    "queries": 5,
    "keys": 7,
    "heads": 3,
    "head_width": 11,
    "key_heads": 3,
    "groups": 2,
    "value_width": 13,
}


def small(plan: Plan) -> dict[str, int]:
    """A size for each symbol; those of the plan where it bounds them, or where its names are not the usual ones."""
    usual = plan.sizes(0)
    out: dict[str, int] = {}
    windows = plan.windows
    free = [each for each in plan.symbols if not each.equals and each.said != "windows"]
    sides = [each.name for each in free if init_role(each.said) == "window"]
    for at, symbol in enumerate(plan.symbols):
        if symbol.equals:
            continue
        wanted = WANTED.get(symbol.meaning, PARAMETERS[at % len(PARAMETERS)])
        # how many windows there are multiplies all
        wanted = FEW.get(symbol.name, wanted) if symbol.said == "windows" else wanted
        wanted = WINDOW if symbol.name in windows else wanted
        wanted = VOLUME[sides.index(symbol.name)] if len(sides) == len(VOLUME) and symbol.name in sides else wanted
        if symbol.fixed is not None:
            out[symbol.name] = usual[symbol.name]
            continue
        size = wanted * 2 if symbol.even and wanted % 2 else wanted
        size = size if symbol.times == 1 else symbol.times
        out[symbol.name] = usual[symbol.name] if size < symbol.least else size
    _bind(plan, out)
    out |= _rooms(plan, out)
    return out if _numbers(plan, out) <= MOST else _lessened(plan, out)


def as_given(plan: Plan) -> dict[str, int] | None:
    """The sizes that the person gave, and small ones of what they left open; None: they are too large to be tried."""
    out = declared_sizes(plan, small(plan))
    length, heads = max(out.get("L", 1), out.get("S", 1)), out.get("H", 1)
    scores = out.get("B", 1) * length * max(out.get("D", 1), heads * length)
    return None if max(out.values(), default=0) > WIDEST or scores > LARGEST else out


def distinct(plan: Plan, sizes: Mapping[str, int]) -> dict[str, int]:
    """The next larger primes of which none is another: at sizes that are equal, or squares or multiples of each other,
    what is wrong may pass for another thing, or for right: 1/√(model width) is 1/(head width) where they are 16 and 4.
    """
    out: dict[str, int] = {each.name: each.fixed for each in plan.symbols if each.fixed is not None}
    for symbol in plan.symbols:
        if symbol.equals or symbol.fixed is not None:
            continue
        factor = 2 if symbol.even else symbol.times
        size = -(-sizes[symbol.name] // factor)
        while size > 1 and (factor * size in out.values() or not _is_prime(size)):
            size += 1
        out[symbol.name] = factor * size
    _bind(plan, out)
    return out


def _bind(plan: Plan, sizes: dict[str, int]) -> None:
    """Give the sizes that follow from others, and from what follows from these."""
    bound = [symbol for symbol in plan.symbols if symbol.equals]
    for _ in bound:
        for symbol in bound:
            sizes[symbol.name] = evaluated(symbol.equals, sizes)


def _is_prime(size: int) -> bool:
    return size > 1 and all(size % part for part in range(2, isqrt(size) + 1))


def level(plan: Plan) -> dict[str, int]:
    """Small sizes of which all that is counted, samples and tokens along each axis, is one number."""
    counted = {each.name for each in _counted(plan)}
    out = {name: COUNT if name in counted else size for name, size in small(plan).items()}
    _bind(plan, out)
    return out


def squared(plan: Plan) -> Plan | None:
    """A plan whose tokens lie in a square, where they lie along two axes; None: they do not."""
    sides = [symbol for symbol in _counted(plan) if symbol.meaning not in ("batch", "queries")]
    if len(sides) < 2:
        return None
    bound = {side.name: replace(side, equals=sides[0].name) for side in sides[1:]}
    return replace(plan, symbols=tuple(bound.get(symbol.name, symbol) for symbol in plan.symbols))


def _lessened(plan: Plan, sizes: Mapping[str, int]) -> dict[str, int]:
    """Sizes of which the axes that no usual name bounds are shorter, windows first, until no input is large: what is
    kept of each run grows with the square of them.
    """
    out = dict(sizes)
    free = [symbol for symbol in _counted(plan, in_any=True) if symbol.meaning not in WANTED]
    for axis in sorted(free, key=lambda file: (file.said != "windows", -out[file.name])):
        if axis.least or axis.times > 1 or axis.even or _numbers(plan, out) <= MOST:
            continue
        among = FEW.values() if axis.said == "windows" else SIDES
        size = next((size for size in among if size not in out.values()), out[axis.name])
        out[axis.name] = min(size, out[axis.name])
        _bind(plan, out)
    return out


def _numbers(plan: Plan, sizes: Mapping[str, int]) -> int:
    """How many numbers the largest input has."""
    shapes = [value for value in plan.call.values() if isinstance(value, list)]
    return max((prod(evaluated(str(axis), sizes) for axis in shape) for shape in shapes), default=0)


def _counted(plan: Plan, *, in_any: bool = False) -> list[Named]:
    """The free sizes of axes that are no features: how many samples there are, and how many tokens along each axis; but
    not how many keys, whose number is their own. in_any: also those that an axis is made of.
    """
    axes = {str(axis) for value in plan.call.values() if isinstance(value, list) for axis in value}
    if in_any:
        bound = {symbol.name: symbol.equals for symbol in plan.symbols if symbol.equals}
        for _ in bound:
            axes |= {word for axis in axes for word in WORD.findall(bound.get(axis, axis))}
    return [
        symbol for symbol in plan.symbols
        if symbol.name in axes and not symbol.equals and symbol.fixed is None
        and symbol.meaning not in {*FEATURES, "keys"}
    ]  # fmt: skip


def _rooms(plan: Plan, sizes: Mapping[str, int]) -> dict[str, int]:
    """Of what must have room for the tokens or the samples: no more than that takes, as it may be kept in every run."""
    wide = {
        symbol.name
        for symbol in plan.symbols
        if symbol.least and not symbol.equals and symbol.fixed is None and not symbol.even
    }
    counts = [
        sizes[symbol.name] for symbol in plan.symbols if symbol.name not in wide and symbol.meaning not in FEATURES
    ]
    bound = {word for symbol in plan.symbols for word in WORD.findall(symbol.equals)}
    least = max(LEAST, ROOM * max(counts, default=0))
    return {name: min(sizes[name], least + 2 * at) for at, name in enumerate(sorted(wide - bound))}
