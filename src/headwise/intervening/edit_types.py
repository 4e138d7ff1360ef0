"""Edit types: what one edit does to some heads of a call, to its weights or to what the heads give."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from headwise.errors import ArgumentError
from headwise.intervening.part_of_call import part_of
from headwise.intervening.positions import PositionSet
from headwise.maps import AttentionMap
from headwise.masks import keys as some_keys
from headwise.watching import CallRecord

__all__ = [
    "AttentionEdit", "EditError", "HeadReplacement", "Knockout", "OutputEdit", "PartLocation", "PatternEdit",
    "PatternPatch", "Temperature",
]  # fmt: skip


class EditError(ArgumentError):
    """A call of attention cannot be changed as is asked."""


class PartLocation(NamedTuple):
    """Where a part lies in a call of Lq queries.

    head: the number of its first head. rows: which of the queries it has, None: all. key: the position of the first
    key, which is not 0 in a cache that has dropped its oldest.
    """

    head: int
    rows: Tensor | None
    Lq: int
    key: int


@dataclass(frozen=True, eq=False)
class AttentionEdit:
    """One edit. text: as it was asked for. heads: which, None: all."""

    text: str
    heads: PositionSet | None


@dataclass(frozen=True, eq=False)
class PatternEdit(AttentionEdit):
    """An edit of the weights. queries: of which positions, None: all."""

    queries: PositionSet | None = None

    def of(self, part: CallRecord, at: PartLocation) -> CallRecord:
        """The part of a call with these weights. at: where in the call it lies."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Temperature(PatternEdit):
    """Logits divided by a temperature."""

    temperature: float = 1.0

    def of(self, part: CallRecord, at: PartLocation) -> CallRecord:
        t = self.temperature
        scale = part.q.shape[-1] ** -0.5 if part.scale is None else part.scale
        bias, sink, weight = (None if x is None else x / t for x in (part.attn_bias, part.sink, part.weight))
        softcap = None if part.softcap is None else part.softcap / t
        return replace(part, scale=scale / t, attn_bias=bias, sink=sink, softcap=softcap, weight=weight)


@dataclass(frozen=True, eq=False)
class Knockout(PatternEdit):
    """Pairs that may not attend, the other weights of the row normalised. keys: None: all of them."""

    keys: PositionSet | None = None

    def of(self, part: CallRecord, at: PartLocation) -> CallRecord:
        Lk = part.k.shape[2]
        is_open = torch.ones(1, Lk, dtype=torch.bool, device=part.q.device)
        is_open[:, slice(None) if self.keys is None else self.keys.within(at.key, Lk, part.q.device)] = False
        keep = some_keys(is_open)
        return replace(part, mask=keep if part.mask is None else part.mask & keep)


@dataclass(frozen=True, eq=False)
class PatternPatch(PatternEdit):
    """The weights of another map."""

    map: AttentionMap | None = None

    def of(self, part: CallRecord, at: PartLocation) -> CallRecord:
        if self.map is None:
            raise EditError(f"{self.text} has no map")
        call, _ = self.map.stored()
        B, H = self.map.shape[:2]
        (b, h), lk = part.q.shape[:2], part.k.shape[2]
        if B not in (1, b) or self.map.shape[2:] != (at.Lq, lk) or at.head + h > H:
            raise EditError(
                f"{self.text} must have weights for batch {b}, heads {at.head}..{at.head + h - 1}, {at.Lq} queries and "
                f"{lk} keys, but the map is {tuple(self.map.shape)}: watch a run on an input of the same length"
            )
        whole = CallRecord(
            call.q, call.k, call.mask, call.attn_bias, call.scale, call.softcap, call.sink, weight=call.weight, v=call.k
        )
        own = part_of(whole, at.head, at.head + h, at.rows)
        q, k = (t.expand(b, -1, -1, -1).to(part.q) for t in (own.q, own.k))
        return replace(own, q=q, k=k, v=part.v)


@dataclass(frozen=True, eq=False)
class OutputEdit(AttentionEdit):
    """An edit of what heads give before the output projection. positions: of which queries, None: all.

    copy: which copy of how many that make up the batch, one after the other; None: the whole batch.
    """

    positions: PositionSet | None = None
    copy: tuple[int, int] | None = None

    def samples(self, batch: int) -> slice:
        """Which elements of a batch of this size change; EditError where it is not made of the copies."""
        if self.copy is None:
            return slice(None)
        number, count = self.copy
        if batch % count:
            raise EditError(f"{self.text} needs {count} copies in a batch, but it has {batch} elements")
        return slice(number * batch // count, (number + 1) * batch // count)

    def of(self, context: Tensor, heads: Tensor, rows: Tensor, start: int) -> Tensor:
        """What heads are to give at some rows, in place of context (B, heads, rows, Dv), which is overwritten then.

        start: of the first row.
        """
        raise NotImplementedError


def _unchanged(context: Tensor, heads: Tensor, rows: Tensor, start: int) -> Tensor:  # noqa: ARG001  as the others
    return context


@dataclass(frozen=True, eq=False)
class HeadReplacement(OutputEdit):
    """By what a function gives of the context, the heads, the rows of this call, and the position of the first."""

    make: Callable[[Tensor, Tensor, Tensor, int], Tensor] = _unchanged

    def of(self, context: Tensor, heads: Tensor, rows: Tensor, start: int) -> Tensor:
        return self.make(context, heads, rows, start)
