"""Report: what became of every weight, and how far the converted layer is from its source."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from headwise.compat.conversion.weight_tables import WeightRow
from headwise.wording import said_in, say
from headwise.wording.screen import columns

__all__ = ["Check", "Report", "Used", "used_by"]


@dataclass(frozen=True)
class Used:
    """One weight of theirs, what it became, and by which steps."""

    theirs: str
    ours: tuple[str, ...]
    steps: tuple[str, ...] = ()


@dataclass(frozen=True)
class Check:
    """One question put to both, in float64: the largest differences of the answers, and what rounding may make.

    inputs, weights: of the gradients with respect to the inputs and to the weights, None: there are none. limits: of
    the three in order.
    """

    question: str
    outputs: float
    inputs: float | None
    weights: float | None
    limits: tuple[float, float, float]

    @property
    def holds(self) -> bool:
        """Whether all three are within their limits; NaN is not."""
        return all(error is None or error <= limit for error, limit in zip(self.found, self.limits, strict=True))

    @property
    def found(self) -> tuple[float, float | None, float | None]:
        """The three differences."""
        return self.outputs, self.inputs, self.weights


@dataclass(frozen=True, repr=False)
class Report:
    """What a conversion did and how it was proved; `str` is a table, `said` one in a language, `to_dict` plain data.

    against: "the module" or "the formula" that the layer was compared with, "" where there was nothing. filled: our
    weights that theirs does not have, and what they were filled with. mask: what the source masks by itself, as code
    to give the layer. notes: what else a reader should know.
    """

    convention: str
    layer: str
    used: tuple[Used, ...]
    ignored: tuple[tuple[str, str], ...]
    filled: tuple[tuple[str, str], ...]
    against: str
    checks: tuple[Check, ...]
    mask: str = ""
    notes: tuple[str, ...] = ()

    @property
    def proved(self) -> bool:
        """Whether the layer was compared with its source and every difference was within its limit."""
        return bool(self.checks) and all(check.holds for check in self.checks)

    @property
    def permutations(self) -> tuple[str, ...]:
        """The steps that were applied, each once."""
        return tuple(dict.fromkeys(step for used in self.used for step in used.steps))

    @property
    def largest(self) -> float:
        """The largest difference of outputs; NaN where nothing was compared."""
        return max((check.outputs for check in self.checks), default=float("nan"))

    @property
    def largest_gradient(self) -> float:
        """The largest difference of gradients; NaN where nothing was compared."""
        all_found = (value for check in self.checks for value in (check.inputs, check.weights) if value is not None)
        return max(all_found, default=float("nan"))

    def to_dict(self) -> dict[str, Any]:
        """Plain data for json, with "schema": 1."""
        return {
            "schema": 1,
            "proved": self.proved,
            "largest": self.largest if self.checks else None,
            "largest_gradient": None if math.isnan(self.largest_gradient) else self.largest_gradient,
            "permutations": list(self.permutations),
            **asdict(self),
        }

    @property
    def summary(self) -> str:
        """From what to what, and how far it is proved, in one line."""
        if not self.checks:
            return f"{self.convention} -> {self.layer}, not proved"
        verdict = "proved against" if self.proved else "not equal to"
        largest = f"largest difference {self.largest:.1e}"
        return f"{self.convention} -> {self.layer}, {verdict} {self.against}: {largest}"

    def said(self, lang: str = "en", *, written: tuple[Used, ...] = (), target: str = "") -> str:
        """The report as a table in a language. written, target: what else was written, and of which convention."""
        lines = [f"{self.convention} -> {self.layer}", "", *_renamed(self.used, lang)]
        lines += [
            "  " + say("convert.report.ignored", lang=lang, name=name, why=said_in(why, lang))
            for name, why in self.ignored
        ]
        lines += [f"  {name}: {said_in(reason, lang)}" for name, reason in self.filled]
        if written:
            lines += ["", say("convert.report.written", lang=lang, target=target), "", *_renamed(written, lang, "<-")]
        lines += ["", *self._proof(lang)]
        if self.mask:
            lines.append(say("convert.report.mask", lang=lang, mask=self.mask))
        lines += [say("convert.report.note", lang=lang, note=said_in(note, lang)) for note in self.notes]
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.said()

    def __repr__(self) -> str:
        return f"Report({self.summary})"

    def _proof(self, lang: str) -> list[str]:
        if not self.checks:
            return [say("convert.report.unproved", lang=lang)]
        verdict = "convert.report.proved" if self.proved else "convert.report.unequal"
        heads = ("convert.report.outputs", "convert.report.inputs", "convert.report.weights")
        titles = [say(head, lang=lang) for head in heads]
        rows = [["", *titles]]
        rows += [[str(said_in(check.question, lang)), *map(_number, check.found)] for check in self.checks]
        return [say(verdict, lang=lang, against=said_in(self.against, lang)), *_table(rows)]


def used_by(rows: Iterable[WeightRow]) -> tuple[Used, ...]:
    """What the rows of a table make of their weights."""
    return tuple(Used(row.theirs, row.names, tuple(step.sentence for step in row.steps)) for row in rows)


def _renamed(used: Iterable[Used], lang: str, arrow: str = "->") -> list[str]:
    """Their names and ours, side by side with the steps between them."""
    sign = "；" if lang == "zh" else "; "
    names = {f"{each.theirs} {arrow} {', '.join(each.ours)}": each.steps for each in used}
    width = max(map(len, names), default=0)
    return [
        f"  {name:{width}}  {sign.join(str(said_in(step, lang)) for step in steps)}".rstrip()
        for name, steps in names.items()
    ]


def _table(rows: list[list[str]]) -> list[str]:
    """Rows of cells in columns as wide as their widest, the first to the left, the numbers to the right."""
    widths = [max(columns(row[n]) for row in rows) for n in range(len(rows[0]))]
    lines = []
    for first, *numbers in rows:
        cells = [first + " " * (widths[0] - columns(first))]
        cells += [" " * (width - columns(cell)) + cell for cell, width in zip(numbers, widths[1:], strict=True)]
        lines.append("  " + "  ".join(cells))
    return lines


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1e}"
