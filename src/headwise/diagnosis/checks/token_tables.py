"""Token tables: the tables of embeddings in which compared tokens are looked up, and what is padding in these."""

from __future__ import annotations

from headwise.dataflow import Run
from headwise.diagnosis.checks.padding import Padding

__all__ = ["table_paddings"]

# what leaves whole numbers as they are
CASTS = frozenset({"to", "long", "int", "type", "cpu", "contiguous", "clone", "detach"})


def table_paddings(run: Run, padding: Padding) -> set[int | None]:
    """The padding_idx of each table in which the very tokens that are compared are looked up; None: it has none."""
    compared = _unmoved(run, padding.entry.at, padding.entry.inputs[0].number)
    return {
        entry.options.get("padding_idx")
        for entry in run.seen
        if entry.last == "embedding" and entry.inputs and _unmoved(run, entry.at, entry.inputs[0].number) == compared
    }


def _unmoved(run: Run, before: int, number: int) -> int:
    """The number of the tensor that another one was made of by moving its entries, or by a cast."""
    while True:
        maker = next((op for op in reversed(run.makers.get(number, ())) if op.at < before), None)
        if maker is None or not maker.inputs or not (maker.is_movement or maker.last in CASTS):
            return number
        before, number = maker.at, maker.inputs[0].number
