"""Effects table: the effects of the heads of a model, layers by heads, read, ranked, drawn and kept in a file."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from headwise.analysis.head_table import HeadTable, checked_count, heat_map, plain_number
from headwise.atomic_write import write_whole
from headwise.errors import ArgumentError
from headwise.watching import Seen

__all__ = ["Effects", "HeadEffect", "KeptEffects", "Measurement"]

# lines of a `str`
MOST_LINES = 12


class HeadEffect(NamedTuple):
    """The effect of one head: the metric with the head changed, less the metric without; NaN where it is not known."""

    name: str
    head: int
    measured: float
    estimated: float


class Measurement(NamedTuple):
    """A measured effect. batch: how many heads its forward pass measured."""

    effect: float
    batch: int


@dataclass(frozen=True, eq=False)
class Effects(HeadTable):
    """The effect of each head of a model on a metric; made by `head_effects`.

    names: of the modules, in running order. heads: how many each has. base: the metric of the unchanged model. by:
    "zero", "mean" or "patch". measured, estimated: (layers, most heads), the metric with the head changed less `base`,
    by forward passes and by gradients; NaN where a layer has fewer heads, None: not asked for. batch: the most heads
    that one pass measured, 1 where none did more; alone: why no more than one, "" where there were more or 1 was asked
    for.
    """

    base: float
    by: str
    measured: Tensor | None = None
    estimated: Tensor | None = None
    batch: int = 1
    alone: str = ""

    @staticmethod
    def of(
        counts: Mapping[str, int], base: float, by: str, estimated: Mapping[tuple[str, int], float] | None
    ) -> Effects:
        """A table of which nothing is measured yet. counts: the heads of each module."""
        table = Effects(tuple(counts), tuple(counts.values()), base, by)
        return table if estimated is None else replace(table, estimated=table._filled(estimated))

    def with_measured(self, measured: Mapping[tuple[str, int], Measurement], alone: str) -> Effects:
        """The table with measured effects. alone: why no pass measured several heads, left out where one did."""
        batch = max((row.batch for row in measured.values()), default=1)
        effects = {place: row.effect for place, row in measured.items()}
        return replace(self, measured=self._filled(effects), batch=batch, alone="" if batch > 1 else alone)

    def top(self, k: int = 10) -> list[HeadEffect]:
        """The k heads of the largest effect, up or down, as measured, or else as estimated; the largest first."""
        return sorted(self._rows(), key=lambda row: -abs(self._ranked(row)))[: checked_count(k)]

    def plot(self, *, ax: Any = None) -> Any:
        """A heat map, layers by heads, on matplotlib's `ax`, None: on axes of its own; those axes. Red is a rise."""
        shown = self.estimated if self.measured is None else self.measured
        values = torch.zeros(0, 0) if shown is None else shown
        return heat_map(values, self.names, label=f"change of the metric, by {self.by}", has_sign=True, ax=ax)

    def to_dict(self) -> dict[str, Any]:
        """The table as plain values: its fields, and a list of effects, None where one is not known."""
        rows = [
            {
                "name": row.name,
                "head": row.head,
                "measured": plain_number(row.measured),
                "estimated": plain_number(row.estimated),
            }
            for row in self._rows()
        ]
        return {
            "names": list(self.names), "heads": list(self.heads), "base": self.base, "by": self.by, "effects": rows,
            "batch": self.batch, "alone": self.alone,
        }  # fmt: skip

    def __str__(self) -> str:
        width = max((len(name) for name in self.names), default=4)
        lines = [f"{len(self.names)} layers, {sum(self.heads)} heads, by {self.by}: the metric is {self.base:.6g}"]
        lines.append(f"{'module':{width}}  head    measured   estimated")
        for row in self.top(MOST_LINES):
            lines.append(f"{row.name:{width}}  {row.head:4d}  {_text(row.measured)}  {_text(row.estimated)}")
        return "\n".join(lines)

    def _rows(self) -> list[HeadEffect]:
        index = {name: n for n, name in enumerate(self.names)}
        return [
            HeadEffect(name, head, *(
                math.nan if table is None else float(table[index[name], head])
                for table in (self.measured, self.estimated)
            ))
            for name, head in self.places()
        ]  # fmt: skip

    def _ranked(self, row: HeadEffect) -> float:
        value = row.estimated if self.measured is None else row.measured
        return 0.0 if math.isnan(value) else value


class KeptEffects:
    """The file of what has been measured, from which a run goes on. path: None: nothing is kept.

    source: the reference run, one number of which tells it from others.
    """

    def __init__(self, path: Path | None, table: Effects, source: Seen) -> None:
        self._path, self._table = path, table
        is_marked = path is not None and table.by != "zero"
        self._reference = float(source.outputs(table.names[0])[0].double().sum()) if is_marked else None

    def save(self, measured: Mapping[tuple[str, int], Measurement], alone: str) -> None:
        """Write what has been measured, with the number of heads of the pass that measured it."""
        if self._path is None:
            return
        table = self._table.with_measured(measured, alone).to_dict() | {"reference": self._reference}
        for row in table["effects"]:
            known = measured.get((row["name"], row["head"]))
            row["batch"] = None if known is None else known.batch
        text = json.dumps(table, indent=1)

        def fill(unfinished: Path) -> None:
            unfinished.write_text(text + "\n", encoding="utf-8")

        write_whole(self._path, fill, force=True)

    def load(self) -> dict[tuple[str, int], Measurement]:
        """What the file holds of a run like this one; ArgumentError where it is of another."""
        if self._path is None or not self._path.exists():
            return {}
        return _effects_of(self._path, self._table, self._reference)


def _effects_of(path: Path, table: Effects, reference: float | None) -> dict[tuple[str, int], Measurement]:
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        # a file written before passes of several heads existed has no batch
        rows = {
            (row["name"], row["head"]): Measurement(float(row["measured"]), int(row.get("batch") or 1))
            for row in kept["effects"]
            if row["measured"] is not None
        }
        same = (tuple(kept["names"]), tuple(kept["heads"]), kept["by"]) == (table.names, table.heads, table.by)
        base, kept_reference = float(kept["base"]), kept["reference"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ArgumentError(f"{path} holds no effects of heads: give another file") from error
    if not same or not math.isclose(base, table.base, rel_tol=1e-6, abs_tol=1e-12):
        raise ArgumentError(
            f"{path} is of another run: its metric is {base:.6g} by {kept['by']!r} over {len(kept['names'])} layers, "
            f"here {table.base:.6g} by {table.by!r} over {len(table.names)}: give another file"
        )
    if (reference is None) != (kept_reference is None) or not math.isclose(
        reference or 0.0, kept_reference or 0.0, rel_tol=1e-6, abs_tol=1e-12
    ):
        raise ArgumentError(f"{path} is of another reference run: give another file")
    return rows


def _text(value: float) -> str:
    return f"{'':>10}" if math.isnan(value) else f"{value:>10.4g}"
