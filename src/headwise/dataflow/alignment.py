"""Alignment: the operations that all probe runs have in common, in the order of the first run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headwise.dataflow.sizes import Sizes
from headwise.recording import Operation, Record
from headwise.source import Span

__all__ = ["Row", "aligned", "by_site"]

Site = tuple[tuple[Span, ...], Span, str]


@dataclass(frozen=True)
class Row:
    """One operation in all runs. places: its index in each record; turns: the runs of its site in each record.

    turn: the index among these, from 0.
    """

    operations: tuple[Operation, ...]
    places: tuple[int, ...]
    site: Site
    turns: Sizes
    turn: int = 0

    @property
    def first(self) -> Operation:
        """The operation in the first run."""
        return self.operations[0]


def aligned(records: Sequence[Record]) -> list[Row]:
    """The operations that all runs have in common; of a loop, the turns that all of them ran."""
    sites = [by_site(record) for record in records]
    rows: list[tuple[int, Row]] = []
    for site, places in sites[0].items():
        everywhere = [run_sites.get(site, []) for run_sites in sites]
        turns = tuple(len(each) for each in everywhere)
        for turn in range(min(turns)):
            at = tuple(each[turn] for each in everywhere)
            operations = tuple(record.operations[place] for record, place in zip(records, at, strict=True))
            rows.append((places[turn], Row(operations, at, site, turns, turn)))
    return [row for _, row in sorted(rows, key=lambda each: each[0])]


def by_site(record: Record) -> dict[Site, list[int]]:
    """The indices of the operations of each site in a record, turn by turn."""
    indices: dict[Site, list[int]] = {}
    for place, operation in enumerate(record.operations):
        indices.setdefault(_site(operation), []).append(place)
    return indices


def _site(operation: Operation) -> Site:
    return operation.chain, operation.span, operation.name
