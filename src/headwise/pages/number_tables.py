"""Number tables: what a page shows beside maps: a number for each head, and generated tokens, a picture."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from headwise.analysis import HeadTable

__all__ = ["TABLE_VIEWS", "GeneratedToken", "NumberTable", "PatchedImage", "tables_of"]

# the views that show tables
TABLE_VIEWS = ("compare", "effects")


@dataclass(frozen=True)
class NumberTable:
    """Numbers of all heads. view: "compare" or "effects". key, about: of its caption, and of what that means.

    values: a row for each layer, NaN where one is not known. has_sign: whether numbers on both sides of 0 are told
    apart.
    """

    view: str
    key: str
    about: str
    values: tuple[tuple[float, ...], ...]
    has_sign: bool

    def to_dict(self) -> dict[str, Any]:
        """As the page's header holds it."""
        return {
            "view": self.view, "key": self.key, "about": self.about, "has_sign": self.has_sign,
            "values": [[value if math.isfinite(value) else None for value in row] for row in self.values],
        }  # fmt: skip


@dataclass(frozen=True)
class GeneratedToken:
    """A token that a model generated, or was given to. query: the number of the token after which it comes; side: of
    the page, whose token that is."""

    query: int
    text: str
    probability: float
    side: int = 0

    def to_dict(self) -> dict[str, Any]:
        """As the page's header holds it."""
        return {"query": self.query, "text": self.text, "probability": self.probability, "side": self.side}


@dataclass(frozen=True)
class PatchedImage:
    """The picture whose patches are the tokens of a page. data: a PNG, as an address that holds it.

    rows, columns: of patches. first: the number of the first patch, after special tokens.
    """

    data: str
    rows: int
    columns: int
    first: int

    def to_dict(self) -> dict[str, Any]:
        """As the page's header holds it."""
        return {"data": self.data, "rows": self.rows, "columns": self.columns, "first": self.first}


def tables_of(table: HeadTable) -> tuple[NumberTable, ...]:
    """The tables of a comparison or of effects; ArgumentError where something else came."""
    from headwise.analysis import RunComparison
    from headwise.errors import ArgumentError
    from headwise.intervening import Effects

    if isinstance(table, RunComparison):
        columns = {
            ("page.compare.divergence", "page.compare.divergence.about"): table.divergence,
            ("page.compare.entropy", "page.compare.entropy.about"): table.entropy,
            ("page.compare.received", "page.compare.received.about"): table.received,
        }
        return tuple(_table("compare", words, values, table.heads) for words, values in columns.items())
    if isinstance(table, Effects):
        both = {
            ("page.effects.measured", "page.effects.measured.about"): table.measured,
            ("page.effects.estimated", "page.effects.estimated.about"): table.estimated,
        }
        return tuple(_table("effects", words, v, table.heads) for words, v in both.items() if v is not None)
    raise ArgumentError(
        f"a page shows what hw.compare or hw.head_effects gives beside its maps, but {type(table).__name__} came"
    )


def _table(view: str, words: tuple[str, str], values: Tensor, heads: tuple[int, ...]) -> NumberTable:
    rows = tuple(tuple(row[:count]) for row, count in zip(values.tolist(), heads, strict=True))
    return NumberTable(view, *words, rows, has_sign=view == "effects" or words[0] == "page.compare.entropy")
