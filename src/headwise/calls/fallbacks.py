"""Fallbacks: what is searched where no call with free sizes runs: as the file does it itself, then with usual sizes."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from headwise.calls.file_usage import usages
from headwise.calls.plan import Named
from headwise.calls.request import Wish
from headwise.calls.roles import init_role
from headwise.calls.source_hints import Reading
from headwise.calls.symbols import LEGEND, LETTERS
from headwise.calls.user_values import Given, checked_call, checked_init

__all__ = ["is_small", "spelled", "usual", "used"]

# a width and its heads, as layers most often have them
USUAL = ((64, 4), (512, 8), (256, 4))
GROUPS = 2
# numbers of a tensor, as a file's own sizes make it
LARGEST = 1 << 25


def used(
    target: Any, namespace: Mapping[str, Any], built: Sequence[inspect.Parameter], called: Sequence[inspect.Parameter]
) -> Iterator[tuple[Given, Given]]:
    """What the file itself gives a target, the numbers that may vary apart."""
    for each in usages(target, namespace):
        yield checked_init(dict(each.init), built), checked_call(dict(each.call), called)


def is_small(init: Given, call: Given) -> bool:
    """Whether a file's own sizes make no tensor so large that trying takes the machine: no weights from the largest to
    the next, nothing that is given, no scores of all its tokens.
    """
    numbers = [each for each in (*init.freed.values(), *init.kept.values()) if type(each) is int and each > 0]
    shapes = [each for each in call.freed.values() if isinstance(each, list)]
    scores = [shape[0] * prod(shape[1:-1]) ** 2 for shape in shapes]
    return all(each <= LARGEST for each in (prod(sorted(numbers)[-2:]), *map(prod, shapes), *scores))


def spelled(init: Given, call: Given) -> Wish:
    """The sizes of a file's own use with a name each: what a number of the constructor is again, is that size.

    The first of several axes is the batch, which may vary.
    """
    known: dict[str, Named] = {}
    names: dict[int, str] = {}
    out: dict[str, Any] = {**init.kept, **init.freed}
    for name, value in ((name, each) for name, each in init.freed.items() if _is_size(name, each)):
        letter = LETTERS.get(init_role(name), "")
        symbol = letter if letter and letter not in known else name
        known[symbol] = replace(LEGEND.get(symbol, Named(symbol, "parameter")), said=name, fixed=value)
        out[name] = symbol
        names.setdefault(value, symbol)
    if "d" not in known and {"D", "H"} <= known.keys():
        wide, heads = known["D"].fixed or 0, known["H"].fixed or 1
        known["d"] = replace(LEGEND["d"], fixed=wide // heads)
    shapes: dict[str, Any] = {**call.kept, **call.freed}
    lists = {name: shape for name, shape in call.freed.items() if isinstance(shape, list)}
    batches = {shape[0] for shape in lists.values() if len(shape) > 2}
    for name, shape in lists.items():
        axes = [names.get(size, size) for size in shape]
        shapes[name] = ["B", *axes[1:]] if shape[0] in batches and len(batches) == 1 else axes
    return Wish(out, shapes, known=known, ranks={name: len(shape) for name, shape in lists.items()})


def _is_size(name: str, value: Any) -> bool:
    """Whether what a parameter is given is a size: one alone is most often none."""
    return type(value) is int and (value > 1 or init_role(name) in LETTERS)


def usual(built: Sequence[inspect.Parameter], reading: Reading) -> Iterator[Wish]:
    """The sizes that a constructor has by default, and those that layers usually have."""
    names = [each.name for each in built] + [name.strip("[]") for own in reading.attributes.values() for name in own]
    letters = {LETTERS.get(init_role(name), "") for name in names}
    if not letters & {"D", "H"}:
        return
    defaults = {
        LETTERS.get(init_role(each.name), ""): each.default for each in reversed(built) if type(each.default) is int
    }
    sizes = list(USUAL)
    if {"D", "H"} & defaults.keys():
        heads = defaults.get("H", USUAL[0][1])
        sizes.insert(0, (defaults.get("D", heads * (USUAL[0][0] // USUAL[0][1])), heads))
    for wide, heads in dict.fromkeys(sizes):
        found = {"D": wide, "H": heads, "d": max(1, wide // max(heads, 1)), "Hkv": max(1, heads // GROUPS)}
        fitting = letters | ({"d"} if {"D", "H"} <= letters else set())
        yield Wish(known={name: replace(LEGEND[name], fixed=size) for name, size in found.items() if name in fitting})
