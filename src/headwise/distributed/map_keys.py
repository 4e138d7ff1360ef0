"""The keys that a rank's rows of a map need: those of all ranks that its queries may attend to, moved once."""

from __future__ import annotations

from torch import Tensor

from headwise.distributed.exchange import Ends, Parcel, Route, exchange
from headwise.distributed.index import compact, put, size_of
from headwise.distributed.needed_keys import needs
from headwise.distributed.plan_cache import planned
from headwise.distributed.spread import Spread
from headwise.masks import Mask


def gathered_keys(k: Tensor, mask: Mask | None, spread: Spread, *, heads: int) -> Tensor:
    """The keys of the whole sequence (B, Hk, L, D), from this rank's k (B, Hk, L of this rank, D).

    0 where none of this rank's queries may attend, in any sample and any of so many query heads.
    """
    B, Hk, _, D = k.shape
    route = planned(_planned, mask, spread, B, heads, Hk)
    (received,) = exchange(route, k)
    columns = compact(needs(mask, spread.layout, batch=B, heads=heads).columns[spread.rank])
    if size_of(columns) == spread.length:
        return received
    whole = k.new_zeros(B, Hk, spread.length, D)
    put(whole, (slice(0, Hk), columns), received)
    return whole


def _planned(mask: Mask | None, spread: Spread, B: int, heads: int, Hk: int) -> Route:
    need, rank = needs(mask, spread.layout, batch=B, heads=heads), spread.rank
    every, count = slice(0, Hk), need.columns[rank].shape[0]
    parcel = Parcel(
        tuple((every, compact(need[r][rank])) for r in range(spread.ranks)),
        tuple((every, compact(place)) for place in need.places(rank)),
        Hk,
        count,
    )
    is_quiet = int(need.received.max()) == 0
    ends = Ends(rank, spread.ranks, spread.group, f"a reading of the map of {spread.length} tokens", is_quiet)
    return Route((parcel,), ((0, (every, slice(0, count))),), ends)
