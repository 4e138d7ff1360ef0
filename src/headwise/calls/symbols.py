"""Symbols: the names of sizes that plans use, and which of them a plan needs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from headwise.calls.plan import Named

__all__ = [
    "FEATURES",
    "LEGEND",
    "LETTERS",
    "MORE",
    "PLACES",
    "SIDES",
    "alike",
    "bases",
    "is_closed",
    "layout_of",
    "named",
    "spoken",
    "width_of",
]

# the sides of a window, an image or a volume that is given as several sizes, by how many
SIDES: Mapping[int, tuple[str, ...]] = {2: ("h", "w"), 3: ("t", "h", "w")}

# meanings of symbols that count features, and those that count samples; all others count places
FEATURES = frozenset({"heads", "head_width", "width", "key_heads", "value_width", "groups"})

# in the order of the legend
LEGEND: dict[str, Named] = {
    symbol.name: symbol
    for symbol in (
        Named("B", "batch"),
        Named("L", "queries"),
        Named("S", "keys"),
        Named("H", "heads"),
        Named("Hkv", "key_heads"),
        Named("g", "groups"),
        Named("d", "head_width"),
        Named("dv", "value_width"),
        Named("D", "width"),
    )
}
# by the roles of parameters whose numbers may be freed
LETTERS: Mapping[str, str] = {
    "heads": "H", "key_heads": "Hkv", "head_width": "d", "value_head_width": "dv", "width": "D",
}  # fmt: skip
# what else an input may have
MORE: dict[str, Named] = {
    symbol.name: symbol
    for symbol in (
        Named("h", "parameter", "height", is_small=True),
        Named("w", "parameter", "width", is_small=True),
        Named("t", "parameter", "time", is_small=True),
        Named("N", "parameter", "rows"),
        Named("n", "parameter", "windows", is_small=True),
        Named("m", "parameter", "windows", is_small=True),
        Named("M", "parameter", "cached keys"),
    )
}


# how many edges a graph has, three from each node
EDGES = Named("edges", "parameter", "edges", equals="3*L")
# layouts that go without saying
USUAL = ("BLD", "BHLd", "BLd")
# axes that are no features
PLACES = frozenset({"B", "L", "S", "H", "d", *MORE})


def width_of(axes: Sequence[Any]) -> str:
    """The axis of the features among those of an input."""
    return next((str(axis) for axis in axes if str(axis) not in PLACES), "D")


def layout_of(axes: Sequence[Any]) -> dict[str, str]:
    """The layout of a call whose first input has these axes, as `--call` takes it; none: it goes without saying.

    >>> layout_of(["B", "dim", "h", "w"]), layout_of(["B", "L", "D"]), layout_of(["B*n", "h*w", "H*d"])
    ({'_layout': 'BDhw'}, {}, {})
    """
    letters = "".join(map(_letter, map(str, axes)))
    return {"_layout": letters} if letters and letters not in USUAL else {}


def _letter(axis: str) -> str:
    """What an axis is in a layout. What is computed from places alone is one of these."""
    names = set(spoken(axis))
    if axis in {*PLACES, "1"}:
        return axis
    if not names or not names <= PLACES - {"H", "d"}:
        return "D"
    return "B" if "B" in names else "L"


def is_closed(symbols: Iterable[Named]) -> bool:
    """Whether all sizes are made of others among them."""
    every = tuple(symbols)
    names = {symbol.name for symbol in every}
    return all(set(spoken(symbol.equals)) <= names for symbol in every)


def spoken(value: Any) -> Iterator[str]:
    """The identifiers in a value of `--init` or `--call`."""
    if isinstance(value, str):
        yield from re.findall(r"[^\W\d]\w*", value)
    elif isinstance(value, Mapping):
        for name, part in value.items():
            if name not in ("argument", "means", "dtype"):
                yield from spoken(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from spoken(part)


def bases(value: Any, symbols: Mapping[str, Named]) -> set[str]:
    """The identifiers in a value, and those that their symbols are computed from."""
    out: set[str] = set()
    ahead = [*spoken(value)]
    while ahead:
        name = ahead.pop()
        if name not in out:
            out.add(name)
            ahead += spoken(symbols[name].equals) if name in symbols else ()
    return out


def named(init: Mapping[str, Any], call: Mapping[str, Any], symbols: Mapping[str, Named]) -> tuple[Named, ...]:
    """The symbols that a plan uses, those that others are computed from first.

    symbols: what each name stands for where it is not as in LEGEND.
    """
    every = {**LEGEND, **MORE, EDGES.name: EDGES, **symbols}
    wanted = [
        name
        for value in (init, {k: v for k, v in call.items() if k != "_layout"})
        for name in spoken(list(value.values()))
    ]
    wanted += [name for name, symbol in symbols.items() if symbol.fixed is not None]
    used: dict[str, Named] = {}
    ahead: set[str] = set()

    def use(name: str) -> None:
        # what is made of itself has no size, and what it is built with fails by that
        if name in used or name in ahead or name not in every:
            return
        ahead.add(name)
        for base in spoken(every[name].equals):
            use(base)
        used[name] = every[name]

    for name in wanted:
        use(name)
    # a width that is bound is spoken of although nothing is given by its name
    for name, symbol in symbols.items():
        if symbol.equals and all(part in used for part in spoken(symbol.equals)):
            use(name)
    order = [*every]
    free = sorted((each for each in used.values() if not each.equals), key=lambda symbol: order.index(symbol.name))
    return (*free, *(each for each in used.values() if each.equals))


def alike(value: Any) -> Any:
    """A value of `--call` with keys as long as queries."""
    if isinstance(value, list):
        return [alike(each) for each in value]
    if isinstance(value, Mapping):
        return {name: alike(each) for name, each in value.items()}
    return "L" if value == "S" else value
