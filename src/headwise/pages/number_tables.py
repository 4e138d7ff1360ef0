"""Number tables: what a page shows beside maps: a number for each head, and generated tokens, a picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headwise.wording import LANGUAGES, Sentence, say

if TYPE_CHECKING:
    from torch import Tensor

    from headwise.analysis import HeadTable

__all__ = ["TABLE_VIEWS", "GeneratedToken", "NumberFormat", "NumberTable", "PatchedImage", "tables_of"]

Rows = tuple[tuple[float, ...], ...]
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
# the most places of a number that is written without a unit
PLACES = 6
# the views that show tables
TABLE_VIEWS = ("compare", "effects")


@dataclass(frozen=True)
class NumberFormat:
    """How the numbers of a table are written: in units of 10 to this power, to so many places."""

    power: int
    places: int

    @property
    def unit(self) -> str:
        """10⁻³; "": numbers are written as they are."""
        return "" if self.power == 0 else "10" + str(self.power).translate(SUPERSCRIPTS)

    def write(self, value: float) -> str:
        """A number as it is written, and never -0.0.

        >>> NumberFormat(-3, 1).write(0.0123), NumberFormat(0, 2).write(-0.001)
        ('12.3', '0.00')
        """
        text = f"{value / 10.0**self.power:.{self.places}f}"
        return text.removeprefix("-") if float(text) == 0 else text


@dataclass(frozen=True)
class NumberTable:
    """Numbers of all heads. view: "compare" or "effects". key, about: of its caption, and of what that means.

    heading: what the view shows. values: a row for each layer, NaN where one is not known. has_sign: whether numbers on
    both sides of 0 are told apart. form: how they are written.
    """

    view: str
    key: str
    about: str
    heading: Sentence
    values: tuple[tuple[float, ...], ...]
    has_sign: bool
    form: NumberFormat

    def caption(self, lang: str) -> str:
        """What its numbers are, and in which unit."""
        unit = say("page.unit", lang=lang, unit=self.form.unit) if self.form.unit else ""
        return say(self.key, lang=lang) + unit

    def to_dict(self) -> dict[str, Any]:
        """As the page's header holds it."""
        return {
            "view": self.view, "key": self.key, "about": self.about, "has_sign": self.has_sign,
            "heading": {lang: self.heading.said(lang) for lang in LANGUAGES},
            "power": self.form.power, "places": self.form.places, "unit": self.form.unit,
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


def tables_of(table: HeadTable, *, metric: str = "") -> tuple[NumberTable, ...]:
    """The tables of a comparison or of effects; ArgumentError where something else came.

    metric: what effects are changes of, "": it has no name.
    """
    from headwise.analysis import RunComparison
    from headwise.errors import ArgumentError
    from headwise.intervening import Effects

    if isinstance(table, RunComparison):
        columns = {
            ("page.compare.divergence", "page.compare.divergence.about"): table.divergence,
            ("page.compare.entropy", "page.compare.entropy.about"): table.entropy,
            ("page.compare.received", "page.compare.received.about"): table.received,
        }
        about = Sentence("page.compare.about")
        return tuple(
            NumberTable("compare", *words, about, rows, words[0] == "page.compare.entropy", _format_plain(rows))
            for words, rows in ((words, _rows(values, table.heads)) for words, values in columns.items())
        )
    if isinstance(table, Effects):
        both = {
            ("page.effects.measured", "page.effects.measured.about"): table.measured,
            ("page.effects.estimated", "page.effects.estimated.about"): table.estimated,
        }
        known = {words: _rows(values, table.heads) for words, values in both.items() if values is not None}
        # all are in the unit of the metric
        form = _format_scaled([row for rows in known.values() for row in rows])
        about = Sentence(
            "page.effects.about",
            metric=metric or Sentence("page.effects.metric"), base=f"{table.base:.4g}", by=table.by,
        )  # fmt: skip
        return tuple(NumberTable("effects", *words, about, rows, True, form) for words, rows in known.items())
    raise ArgumentError(
        f"a page shows what hw.compare or hw.head_effects gives beside its maps, but {type(table).__name__} came"
    )


def _rows(values: Tensor, heads: tuple[int, ...]) -> Rows:
    return tuple(tuple(row[:count]) for row, count in zip(values.tolist(), heads, strict=True))


def _format_plain(rows: Sequence[Sequence[float]]) -> NumberFormat:
    """Numbers whose scale is known, as they are: two digits of the largest below 1, three from there on.

    Where those need more than PLACES, they are written in units, as none but 0 is to be read as 0.
    """
    size = _size(rows)
    if 1 - size > PLACES:
        return _format_scaled(rows)
    return NumberFormat(0, max(0, (1 if size < 0 else 2) - size))


def _format_scaled(rows: Sequence[Sequence[float]]) -> NumberFormat:
    """Numbers of any scale: four digits of the largest, below 1 in thousandths, millionths and so on."""
    size = _size(rows)
    power = min(0, 3 * math.floor(size / 3))
    return NumberFormat(power, max(0, 3 - (size - power)))


def _size(rows: Sequence[Sequence[float]]) -> int:
    """The power of 10 of the largest number as four digits of it have it, 0 where all are 0 or unknown."""
    largest = max((abs(value) for row in rows for value in row if math.isfinite(value)), default=0.0)
    # 9.9996 is written as 10.00
    return int(f"{largest:.3e}".partition("e")[2])
