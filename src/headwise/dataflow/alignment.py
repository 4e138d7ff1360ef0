"""Alignment: the operations that every probe run made, in the order of the first, side by side."""

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
    """One operation in all runs. places: where it stands in each record; turns: how often its site ran in each.

    turn: of these, which one this is, from 0.
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
    """The operations that all runs made; of a loop that some ran more often, the turns that all made."""
    sites = [by_site(done) for done in records]
    rows: list[tuple[int, Row]] = []
    for site, places in sites[0].items():
        everywhere = [own.get(site, []) for own in sites]
        turns = tuple(len(each) for each in everywhere)
        for turn in range(min(turns)):
            at = tuple(each[turn] for each in everywhere)
            operations = tuple(done.operations[place] for done, place in zip(records, at, strict=True))
            rows.append((places[turn], Row(operations, at, site, turns, turn)))
    return [row for _, row in sorted(rows, key=lambda each: each[0])]


def by_site(done: Record) -> dict[Site, list[int]]:
    """Where the operations of each site stand in a record, turn by turn."""
    own: dict[Site, list[int]] = {}
    for place, operation in enumerate(done.operations):
        own.setdefault(_site(operation), []).append(place)
    return own


def _site(operation: Operation) -> Site:
    return operation.chain, operation.span, operation.name
