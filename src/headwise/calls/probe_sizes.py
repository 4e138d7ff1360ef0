"""Probe sizes: the sizes of the symbols of a plan in each of its runs."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from math import prod
from typing import Protocol

from headwise.calls.roles import init_role

__all__ = ["PRIMES", "least_sizes", "probe_sizes"]

# 2 and 3 are left to constants; small, so that scores stay small
PRIMES = (5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53)
# the widest that a layer may become: building it is what a run costs; and that of heads that share keys
WIDEST, WIDEST_OF_THREE = 800, 200
# of every four runs one has even sizes, without which L//2+1 and L-L//2 are one
EVEN = 3
FEW = (2, 3)
# so many small sizes are sides of one thing
VOLUME = 3
# lengths of inputs
TOKENS = ("queries", "keys")
HALVED = frozenset({"queries", "keys", "head_width", "parameter", "key_length"})


class Free(Protocol):
    """What is asked of a symbol here: see `Named`."""

    @property
    def name(self) -> str: ...
    @property
    def meaning(self) -> str: ...
    @property
    def said(self) -> str: ...
    @property
    def equals(self) -> str: ...
    @property
    def least(self) -> int: ...
    @property
    def even(self) -> bool: ...
    @property
    def is_small(self) -> bool: ...
    @property
    def times(self) -> int: ...


def probe_sizes(free: Sequence[Free], derived: Sequence[Free], probe: int) -> dict[str, int]:
    """Distinct sizes for the free symbols of a probe run: primes, twice a prime where a size must be even.

    Between any two runs of different parity the order of every pair is turned round. derived: whose expressions say
    which symbols are multiplied; these get the small ones, so that no width is more than WIDEST where that can be.

    >>> from headwise.calls.plan import Named
    >>> pair = Named("H", "heads"), Named("d", "head_width")
    >>> [probe_sizes(pair, (), probe) for probe in range(4)]
    [{'H': 5, 'd': 7}, {'H': 7, 'd': 5}, {'H': 5, 'd': 11}, {'H': 11, 'd': 10}]
    """
    windows = _windows(free, probe)
    others = [symbol for symbol in free if symbol.name not in windows]
    count = len(others)
    shift = probe // 2
    # every second run goes through the same numbers backwards
    pool = [PRIMES[(at + (at >= count - 1 and shift)) % len(PRIMES)] for at in range(count)]
    turned = pool[shift % max(count, 1) :] + pool[: shift % max(count, 1)] if count > 2 else pool
    if probe % 2:
        turned = turned[::-1]
    sizes = {symbol.name: size for symbol, size in zip(others, turned, strict=True)}
    sides = sorted((symbol for symbol in others if symbol.is_small), key=lambda symbol: not _is_window(symbol))
    # an image is larger than the windows that it is cut into
    count = sum(map(_is_window, sides)) if len(sides) >= VOLUME else 0
    small = [symbol.name for symbol in sides]
    _shrunk(sizes, small, probe, count, has_counts=bool(windows))
    _lengthened(sizes, others)
    _narrowed(sizes, others, derived, small)
    sizes |= windows
    _thinned(sizes, others, derived, probe)
    for symbol in free:
        is_doubled = symbol.even or (probe % 4 == EVEN and symbol.meaning in HALVED and not symbol.is_small)
        size = _raised(sizes[symbol.name] * (2 if is_doubled else 1), symbol, sizes)
        sizes[symbol.name] = size if symbol.times == 1 else symbol.times * (1 + probe % (EVEN + 1))
    return sizes


def _is_window(symbol: Free) -> bool:
    return symbol.said != "windows" and init_role(symbol.said) == "window"


def _shrunk(sizes: dict[str, int], small: Sequence[str], probe: int, count: int, *, has_counts: bool) -> None:
    """Give the smallest sizes to these, other ones in each run: what never changes could pass for a constant.

    count: of the first, which stay below all others; 0: they are not told apart. has_counts: of windows, which have the
    smallest sizes of all, and share them with none but the sides of a volume.
    """
    # the sides of a volume are multiplied
    least = PRIMES if len(small) < VOLUME or (has_counts and count < VOLUME) else (*FEW, *PRIMES)
    first, rest = (least[: count + 1], least[count + 1 :]) if count else ((), least)
    for at, name in enumerate(small):
        pool, place, many = (first, at, count) if at < count else (rest, at - count, len(small) - count)
        size = pool[(place + probe) % (many + 1)]
        holder = next((symbol for symbol, value in sizes.items() if value == size), name)
        sizes[holder], sizes[name] = sizes[name], size


def _lengthened(sizes: dict[str, int], free: Sequence[Free]) -> None:
    """Give a length that a window would cover the next size of another symbol."""
    most = max((sizes[symbol.name] for symbol in free if symbol.is_small and _is_window(symbol)), default=0)
    others = [symbol.name for symbol in free if symbol.meaning not in TOKENS and not symbol.is_small]
    for symbol in free:
        larger = sorted(name for name in others if sizes[name] > most)
        if symbol.meaning in TOKENS and sizes[symbol.name] < most and larger:
            other = min(larger, key=lambda name: sizes[name])
            sizes[symbol.name], sizes[other] = sizes[other], sizes[symbol.name]


def _windows(free: Sequence[Free], probe: int) -> dict[str, int]:
    """How many windows an image has in symbol direction: few, as what it holds grows with the square of everything."""
    counts = [symbol.name for symbol in free if symbol.said == "windows"]
    return dict(zip(counts, FEW if probe % 2 == 0 else FEW[::-1], strict=False)) if len(counts) <= len(FEW) else {}


def least_sizes(free: Sequence[Free], derived: Sequence[Free] = ()) -> dict[str, int]:
    """Distinct primes from 2 on, but that the sides of a volume have some of their own: what is only tried, is tried
    fast.
    """
    out: dict[str, int] = {}
    multiplied = {name for factors in _of_three(free, derived) for name in factors}
    free = sorted(free, key=lambda symbol: symbol.name not in multiplied)
    # windows come first: what holds them holds their product; the sides of those of a volume may be as few
    counts = _windows(free, 0)
    is_volume = sum(map(_is_window, free)) >= VOLUME
    out |= counts if is_volume else {}
    rest = [symbol for symbol in free if symbol.name not in out]
    order = sorted(rest, key=lambda symbol: (symbol.said != "windows", not symbol.is_small)) if counts else rest
    sides = [symbol for symbol in rest if symbol.is_small and is_volume]
    sides.sort(key=lambda symbol: not _is_window(symbol))
    for group in (sides, [symbol for symbol in order if symbol not in sides]):
        for symbol, prime in zip(group, (*FEW, *PRIMES, *PRIMES), strict=False):
            size = _raised(prime * (2 if symbol.even else 1), symbol, out)
            out[symbol.name] = size if symbol.times == 1 else symbol.times
    return out


def _raised(size: int, symbol: Free, others: Mapping[str, int]) -> int:
    """A size that is large enough, of the same parity, and no other's: of tokens no larger than that, of a table longer
    than all that is looked up in it.
    """
    if symbol.meaning not in TOKENS:
        return size + 2 * PRIMES[-1] * max(0, -(-(symbol.least - size) // (2 * PRIMES[-1])))
    if size < symbol.least:
        size += 2 * -(-(symbol.least - size) // 2)
        while size in others.values() or size in PRIMES:
            size += 2
    return size


def _products(free: Sequence[Free], derived: Sequence[Free]) -> list[str]:
    """How wide layers become: the derived sizes, and the heads times their width, whatever the width of a model is."""
    heads = [symbol.name for symbol in (*free, *derived) if symbol.meaning == "heads"]
    widths = [symbol.name for symbol in free if symbol.meaning == "head_width"]
    return [*(symbol.equals for symbol in derived), *(f"{count}*{width}" for count in heads for width in widths)]


def _narrowed(sizes: dict[str, int], free: Sequence[Free], derived: Sequence[Free], small: Sequence[str]) -> None:
    """Give small sizes to the factors of what becomes too wide. small: symbols that keep theirs."""
    expressions = {symbol.name: symbol.equals for symbol in derived}
    for product in _products(free, derived):
        factors = _factors(product, expressions)
        evens = sum(factor.even for factor in free if factor.name in factors)
        # a multiple is what it is, whatever prime it was given
        times = prod(factor.times * (EVEN + 1) for factor in free if factor.name in factors and factor.times > 1)
        factors -= {factor.name for factor in free if factor.times > 1}
        others = [name for name in sizes if name not in factors and name not in small]
        while prod(sizes.get(name, 1) for name in factors) * times << evens > WIDEST and others and factors:
            widest, least = max(factors, key=lambda name: sizes.get(name, 0)), min(others, key=lambda name: sizes[name])
            if sizes[least] >= sizes.get(widest, 0):
                break
            sizes[widest], sizes[least] = sizes[least], sizes[widest]


def _thinned(sizes: dict[str, int], free: Sequence[Free], derived: Sequence[Free], probe: int) -> None:
    """Give 2 or 3 to one factor of what has three, as the width of heads that share keys: primes are too many."""
    for factors in _of_three(free, derived):
        is_wide = prod(sizes[name] for name in factors) > WIDEST_OF_THREE
        if is_wide and FEW[probe % 2] not in sizes.values():
            sizes[max(factors, key=lambda name: sizes[name])] = FEW[probe % 2]


def _of_three(free: Sequence[Free], derived: Sequence[Free]) -> list[list[str]]:
    """The free symbols of each width that has three of them or more."""
    expressions = {symbol.name: symbol.equals for symbol in derived}
    named = {symbol.name for symbol in free if symbol.times == 1}
    factors = (sorted(_factors(product, expressions) & named) for product in _products(free, derived))
    return [names for names in factors if len(names) > 2]


def _factors(expression: str, expressions: Mapping[str, str]) -> set[str]:
    """The free symbols in an expression."""
    names = {node.id for node in ast.walk(ast.parse(expression, mode="eval")) if isinstance(node, ast.Name)}
    return {
        free for name in names for free in (_factors(expressions[name], expressions) if name in expressions else {name})
    }
