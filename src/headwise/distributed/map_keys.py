"""The keys that a rank's rows of a map need: those of all ranks that its queries may attend to, moved once."""

from __future__ import annotations

from torch import Tensor

from headwise.distributed.exchange import Ends, Parcel, Route, exchange
from headwise.distributed.index import compact, put, size_of
from headwise.distributed.needed_keys import NeededKeys, needs
from headwise.distributed.plan_cache import planned
from headwise.distributed.sequences import Sequences
from headwise.distributed.spread import Spread
from headwise.masks import Mask


def gathered_keys(k: Tensor, mask: Mask | None, spread: Sequences, *, heads: int) -> Tensor:
    """The keys of the whole sequence (B, Hk, Lk, D), from this rank's k (B, Hk, Lk of this rank, D).

    0 where none of this rank's queries may attend, in any sample and any of so many query heads.
    """
    source = spread.source
    if source is None:
        return k
    B, Hk, _, D = k.shape
    route = planned(_planned, mask, spread, B, heads, Hk)
    (received,) = exchange(route, k)
    columns = compact(_needs(mask, spread, source, B, heads).columns[source.rank])
    if size_of(columns) == source.length:
        return received
    whole = k.new_zeros(B, Hk, source.length, D)
    put(whole, (slice(0, Hk), columns), received)
    return whole


def _needs(mask: Mask | None, spread: Sequences, source: Spread, B: int, heads: int) -> NeededKeys:
    return needs(mask, spread.queries.layout, source.layout, batch=B, heads=heads)


def _planned(mask: Mask | None, spread: Sequences, B: int, heads: int, Hk: int) -> Route:
    source = spread.moved
    need, rank = _needs(mask, spread, source, B, heads), source.rank
    every, count = slice(0, Hk), need.columns[rank].shape[0]
    parcel = Parcel(
        tuple((every, compact(need[r][rank])) for r in range(source.ranks)),
        tuple((every, compact(place)) for place in need.places(rank)),
        Hk,
        count,
    )
    is_quiet = int(need.received.max()) == 0
    ends = Ends(rank, source.ranks, source.group, f"a reading of the map of {source.length} tokens", is_quiet)
    return Route((parcel,), ((0, (every, slice(0, count))),), ends)
