"""Expressions: the simplest product or sum of symbols that equals a size in every probe run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations, combinations_with_replacement, permutations

from headwise.dataflow.sizes import Sizes, product, times

__all__ = ["Expressions"]

FACTORS = (1, 2, 3, 4)
# the most symbols of a product: B*H*L*S is the largest in attention
LONGEST = 4
# as many counts of blocks are multiplied
MOST_COUNTS = 16
UNKNOWN = "?"
# from slow to fast, as in attention; other symbols follow in their order
ROWS = ("B", "L", "S", "Hkv", "g", "H", "d")


class Expressions:
    """Names of sizes, by the size of each symbol in each run.

    symbols: in order of preference. equals: the product that a derived symbol must be.

    >>> e = Expressions({"L": (5, 7, 11), "H": (7, 5, 13), "d": (11, 13, 5), "D": (77, 65, 65)}, {"D": "H*d"})
    >>> e.name((77, 65, 65)), e.name((9, 13, 21)), e.name((231, 195, 195)), e.name((8, 8, 8)), e.name((1, 2, 4))
    ('D', '2*L-1', '3*D', '8', '?')
    """

    def __init__(self, symbols: Mapping[str, Sizes], equals: Mapping[str, str] | None = None) -> None:
        self.symbols = dict(symbols)
        self.equals = dict(equals or {})
        self._runs = len(next(iter(symbols.values()))) if symbols else 1
        self._names: dict[Sizes, str] = {}
        for sizes, text in self._candidates():
            self._names.setdefault(sizes, text)

    def name(self, sizes: Sizes) -> str:
        """The simplest expression; a number where the size is the same in every run; "?": none fits."""
        if len(set(sizes)) == 1 and len(sizes) > 1:
            return self._fixed(sizes) or str(sizes[0])
        return self._names.get(sizes, UNKNOWN)

    def _fixed(self, sizes: Sizes) -> str:
        """The only symbol with this size in every run; "": none or several, or a number that may be the code's own."""
        fitting = [name for name, each in self.symbols.items() if each == sizes]
        return fitting[0] if len(fitting) == 1 and sizes[0] > 2 else ""

    def _candidates(self) -> Iterator[tuple[Sizes, str]]:
        """Every expression, the simplest first."""
        moving = {name: sizes for name, sizes in self.symbols.items() if len(set(sizes)) > 1}
        free = {name: sizes for name, sizes in moving.items() if name not in self.equals}
        yield from ((sizes, name) for name, sizes in moving.items())
        yield from self._products(moving, 1, FACTORS[1:])
        yield from self._products(moving, 2, (1,))
        yield from self._sums(moving)
        yield from self._parts(moving)
        yield from self._products(moving, 2, FACTORS[1:])
        # longer products use the factors of a derived symbol, not the symbol
        yield from self._products(moving, 3, FACTORS)
        yield from self._products(free, LONGEST, (1,))
        yield from self._packed(moving)

    def _products(
        self, symbols: Mapping[str, Sizes], length: int, factors: tuple[int, ...]
    ) -> Iterator[tuple[Sizes, str]]:
        for factor in factors:
            for names in combinations_with_replacement(symbols, length):
                sizes = product([symbols[name] for name in names], self._runs)
                ordered = sorted(names, key=lambda name: ROWS.index(name) if name in ROWS else len(ROWS))
                text = "*".join([*([str(factor)] if factor > 1 else []), *ordered])
                yield tuple(factor * size for size in sizes), text

    def _sums(self, symbols: Mapping[str, Sizes]) -> Iterator[tuple[Sizes, str]]:
        for name, sizes in symbols.items():
            for factor in (1, 2):
                term = name if factor == 1 else f"{factor}*{name}"
                for more in (1, -1, 2, -2):
                    yield tuple(factor * size + more for size in sizes), f"{term}{more:+d}"
        names = list(symbols)
        for at, first in enumerate(names):
            for second in names[at + 1 :]:
                pairs = list(zip(symbols[first], symbols[second], strict=True))
                yield tuple(a + b for a, b in pairs), f"{first}+{second}"
                yield tuple(a + b - 1 for a, b in pairs), f"{first}+{second}-1"
                yield tuple(a + b + 1 for a, b in pairs), f"{first}+{second}+1"
                yield tuple(a - b for a, b in pairs), f"{first}-{second}"
                yield tuple(b - a for a, b in pairs), f"{second}-{first}"
                yield tuple(a - b + 1 for a, b in pairs), f"{first}-{second}+1"
                yield tuple(b - a + 1 for a, b in pairs), f"{second}-{first}+1"
        for sizes, term in self._products(symbols, 2, (1,)):
            for more in (1, -1):
                yield tuple(size + more for size in sizes), f"{term}{more:+d}"

    def _packed(self, symbols: Mapping[str, Sizes]) -> Iterator[tuple[Sizes, str]]:
        """Queries, keys and values in one width, with fewer heads for keys: (H+2*Hkv)*d."""
        if "Hkv" in symbols and "H" in symbols:
            heads = tuple(h + 2 * k for h, k in zip(symbols["H"], symbols["Hkv"], strict=True))
            yield heads, "H+2*Hkv"
            for name, sizes in symbols.items():
                yield tuple(a * b for a, b in zip(heads, sizes, strict=True)), f"(H+2*Hkv)*{name}"

    def _parts(self, symbols: Mapping[str, Sizes]) -> Iterator[tuple[Sizes, str]]:
        for name, sizes in symbols.items():
            for factor in FACTORS[1:]:
                yield tuple(size // factor for size in sizes), f"{name}//{factor}"
            yield tuple(size - size // 2 for size in sizes), f"{name}-{name}//2"
            yield tuple(size // 2 + 1 for size in sizes), f"{name}//2+1"
        for first, a in symbols.items():
            for second, b in symbols.items():
                if first != second:
                    yield tuple(x // y for x, y in zip(a, b, strict=True)), f"{first}//{second}"
        yield from self._blocks(symbols)

    def _blocks(self, symbols: Mapping[str, Sizes]) -> Iterator[tuple[Sizes, str]]:
        """What is cut into blocks: how many there are, all of them filled up, the rest in the last one; and tables of
        distances within a block, on each of its sides.
        """
        pairs = [
            (first, second)
            for first, second in permutations(symbols, 2)
            if all(a > b for a, b in zip(symbols[first], symbols[second], strict=True))
        ]
        counts: list[tuple[Sizes, str]] = []
        for first, second in pairs:
            together = list(zip(symbols[first], symbols[second], strict=True))
            count = tuple(-(-a // b) for a, b in together), f"ceil({first}/{second})"
            counts.append(count)
            yield count
            yield tuple(-(-a // b) * b for a, b in together), f"ceil({first}/{second})*{second}"
            yield tuple(a % b for a, b in together), f"{first}%{second}"
        yield from self._strided(symbols)
        sides = [(tuple(2 * size - 1 for size in sizes), f"(2*{name}-1)") for name, sizes in symbols.items()]
        for factors in (counts[:MOST_COUNTS], sides):
            for (a, first), (b, second) in combinations_with_replacement(factors, 2):
                yield times(a, b), f"{first}*{second}"
        for (a, first), (b, second) in combinations(counts[:MOST_COUNTS], 2):
            for name, sizes in symbols.items():
                yield times(sizes, times(a, b)), f"{name}*{first}*{second}"

    def _strided(self, symbols: Mapping[str, Sizes]) -> Iterator[tuple[Sizes, str]]:
        """Patches of a length, by a stride of their own, also where one more is filled up behind."""
        for length, patch, stride in permutations(symbols, 3):
            together = list(zip(symbols[length], symbols[patch], symbols[stride], strict=True))
            if all(a >= b for a, b, _ in together):
                yield tuple((a - b) // c + 1 for a, b, c in together), f"({length}-{patch})//{stride}+1"
                yield tuple((a - b) // c + 2 for a, b, c in together), f"({length}-{patch})//{stride}+2"
