"""Uncached results: the result of an operation for all tokens replaces its result for a part of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from headwise.dataflow import AttentionOps, Decoded, Decoder, MarkedOp
from headwise.recording import Site, site_of

__all__ = ["Transplants"]

NEAR = 1e-9


class Transplants:
    """The operations of the runs without a cache, by their sites and by how many tokens there are."""

    def __init__(self, decoder: Decoder, cuts: Sequence[int]) -> None:
        self.decoder = decoder
        # all of them now, as none may run within another
        self._known = {end: self._of(end) for end in accumulate(cuts)}

    def _of(self, end: int) -> dict[Site, list[tuple[Tensor, ...]]]:
        run = self.decoder.whole(end, recorded=True).run
        found: dict[Site, list[tuple[Tensor, ...]]] = {}
        for each in () if run is None else run.record.operations:
            values = tuple(made.value for made in each.outputs if made.value is not None)
            found.setdefault(site_of(each), []).append(values)
        return found

    def roots(self, done: Decoded, at: int, attention: AttentionOps) -> list[MarkedOp]:
        """The operations of one call, up to the weighted sum, that make of what is right another thing than without."""
        run = done.run
        if run is None:
            return []
        first, end = sum(done.cuts[:at]), sum(done.cuts[: at + 1])
        counts: dict[Site, int] = {}
        wrong: set[int] = set()
        out = []
        for entry in run.seen[done.bounds[at] : attention.context.at + 1]:
            site = site_of(entry.operation)
            place = counts[site] = counts.get(site, -1) + 1
            wholes = self._known[end].get(site, [])
            differs = _differs(entry, wholes[place], first, end) if place < len(wholes) else None
            is_led = bool(wrong & {each.number for each in entry.operation.inputs})
            numbers = {each.number for each in entry.operation.outputs} | set(entry.operation.writes)
            if differs is False:
                wrong -= numbers
            elif differs or is_led:
                wrong |= numbers
            if differs and not is_led:
                out.append(entry)
        return out

    def stand_ins(self, entries: Sequence[MarkedOp]) -> dict[Site, Callable[..., Any]]:
        """What makes of some tokens what is made of all."""
        return {site_of(each.operation): self._right(site_of(each.operation), each.function) for each in entries}

    def is_known(self, entry: MarkedOp) -> bool:
        """Whether an operation is also run without a cache."""
        return any(site_of(entry.operation) in each for each in self._known.values())

    def widened(self, entry: MarkedOp, before: Sequence[MarkedOp]) -> dict[Site, Callable[..., Any]]:
        """What makes of some tokens, where others came before them, what is made of all up to the last of them.

        before: the operations of the same call; where a site is met more than once, only this time is meant.
        """
        site = site_of(entry.operation)
        place, function = self.decoder.place, entry.function
        turn = sum(each.at < entry.at and site_of(each.operation) == site for each in before)

        def right(*args: Any, **options: Any) -> Any:
            made = function(*args, **options)
            count = place.counts[site] = place.counts.get(site, -1) + 1
            wholes = self._known[place.end].get(site, [])
            if count != turn or count >= len(wholes) or not isinstance(made, Tensor) or len(wholes[count]) != 1:
                return made
            return wholes[count][0].to(made.dtype).clone()

        return {site: right}

    def _right(self, site: Site, function: Callable[..., Any]) -> Callable[..., Any]:
        place = self.decoder.place

        def right(*args: Any, **options: Any) -> Any:
            made = function(*args, **options)
            count = place.counts[site] = place.counts.get(site, -1) + 1
            wholes = self._known[place.end].get(site, [])
            if count >= len(wholes):
                return made
            many = list(made) if isinstance(made, tuple | list) else [made]
            parts = [
                _part_of(whole, tuple(each.shape), place.first, place.end) if isinstance(each, Tensor) else None
                for each, whole in zip(many, wholes[count], strict=False)
            ]
            parts += [None] * (len(many) - len(parts))
            out = [_put(each, part, function) for each, part in zip(many, parts, strict=True)]
            return type(made)(out) if isinstance(made, tuple | list) else out[0]

        return right


def _differs(entry: MarkedOp, wholes: tuple[Tensor, ...], first: int, end: int) -> bool | None:
    """Whether an operation made another thing of some tokens than of all; None: the two cannot be compared."""
    known = []
    for made, whole in zip(entry.operation.outputs, wholes, strict=False):
        part = _part_of(whole, made.shape, first, end)
        if part is not None and made.value is not None:
            known.append(not _is_same(part, made.value))
    return any(known) if known else None


def _put(made: Any, part: Tensor | None, function: Callable[..., Any]) -> Any:
    if part is None:
        return made
    part = part.to(made.dtype)
    name = getattr(function, "__name__", "")
    if name.endswith("_") and not name.endswith("__"):
        return made.copy_(part)
    return part.clone()


def _part_of(whole: Tensor, shape: tuple[int, ...], first: int, end: int) -> Tensor | None:
    """What of a result for all tokens is the result for some: rows from first to end, keys up to end; None: neither."""
    if whole.ndim != len(shape):
        return None
    for axis, (size, wanted) in enumerate(zip(whole.shape, shape, strict=True)):
        if size == wanted:
            continue
        if size != end or wanted != end - first:
            return None
        whole = whole.narrow(axis, first, end - first)
    return whole


def _is_same(a: Tensor, b: Tensor) -> bool:
    if a.dtype == torch.bool or b.dtype == torch.bool:
        return torch.equal(a, b)
    return torch.allclose(a, b.to(a.dtype), rtol=NEAR, atol=NEAR, equal_nan=True)
