"""Heads: ranks trade tokens for heads, attend to whole sequences of some heads each, and trade back.

Jacobs et al. 2023, "DeepSpeed Ulysses", arXiv:2309.14509; here any number of heads from the number of ranks on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor

from headwise.distributed.dropout import attend, drops_at
from headwise.distributed.exchange import Cut, Ends, Parcel, Route, exchange
from headwise.distributed.index import Index, compact, size_of
from headwise.distributed.plan_cache import planned
from headwise.distributed.spread import Spread
from headwise.masks import Mask
from headwise.masks.head_subset import some_heads
from headwise.ops.call import Call


@dataclass(frozen=True, eq=False)
class HeadsPlan:
    """The exchanges there and back, this rank's query heads, and the mask for them."""

    there: Route
    back: Route
    heads: slice
    mask: Mask | None


def why_not(call: Call, spread: Spread) -> str:
    """Why heads cannot be traded for tokens; "" where they can."""
    Hq = call.q.shape[1]
    return f"Hq={Hq} query heads do not reach for {spread.ranks} ranks" if Hq < spread.ranks else ""


def run(call: Call, spread: Spread) -> Tensor:
    """The outputs of this rank's queries (B, Hq, Lq, Dv): an exchange, one call of its heads, and an exchange back."""
    planned = plan(call, spread)
    q, k, v = exchange(planned.there, call.q, call.k, call.v)
    bias = call.attn_bias
    if bias is not None and bias.ndim == 4 and bias.shape[1] > 1:
        bias = bias[:, planned.heads]
    sink = None if call.sink is None else call.sink[planned.heads]
    some = replace(call, q=q, k=k, v=v, mask=planned.mask, attn_bias=bias, sink=sink, prepared={})
    everything = torch.arange(spread.length)
    out = attend(some, drops_at(call, everything, everything, planned.heads.start))
    return exchange(planned.back, out)[0]


def sent(call: Call, spread: Spread) -> tuple[int, int]:
    """The bytes that the busiest rank receives forward, and in how many steps."""
    (B, Hq, _, D), Hk, Dv, length = call.q.shape, call.k.shape[1], call.v.shape[3], spread.length
    most = 0
    for mine, tokens in zip(shares(Hq, spread.ranks), spread.layout.tokens, strict=True):
        there, keys = length - tokens.shape[0], shared(mine, Hq // Hk)
        back = tokens.shape[0] * (Hq - size_of(mine)) * Dv
        most = max(most, there * (size_of(mine) * D + size_of(keys) * (D + Dv)) + back)
    return most * B * call.q.element_size(), 2


def plan(call: Call, spread: Spread) -> HeadsPlan:
    """Which heads go where, for a call."""
    sizes = (call.q.shape[1], call.k.shape[1])
    return planned(_planned, call.mask, spread, *sizes)


def shares(Hq: int, ranks: int) -> tuple[slice, ...]:
    """The query heads of each rank, as equal as can be.

    >>> shares(5, 2)
    (slice(0, 3, None), slice(3, 5, None))
    """
    bounds = [rank * (Hq // ranks) + min(rank, Hq % ranks) for rank in range(ranks + 1)]
    return tuple(slice(start, stop) for start, stop in pairwise(bounds))


def shared(heads: slice, groups: int) -> slice:
    """The key/value heads that some query heads read."""
    return slice(heads.start // groups, (heads.stop - 1) // groups + 1)


def _planned(mask: Mask | None, spread: Spread, Hq: int, Hk: int) -> HeadsPlan:
    tokens, rank, length = spread.layout.tokens, spread.rank, spread.length
    queries = shares(Hq, spread.ranks)
    keys = tuple(shared(heads, Hq // Hk) for heads in queries)
    mine, everything = queries[rank], slice(0, length)
    local = slice(0, spread.tokens.shape[0])
    at = tuple(compact(index) for index in tokens)

    def parcel(shares: tuple[slice, ...]) -> Parcel:
        count = size_of(shares[rank])
        places = tuple((slice(0, count), index) for index in at)
        return Parcel(tuple((heads, local) for heads in shares), places, count, length)

    read = (_repeated(mine, keys[rank], Hq // Hk), everything)
    cuts: tuple[Cut, ...] = ((0, (slice(0, size_of(mine)), everything)), (1, read), (2, read))
    there = Route(
        (parcel(queries), parcel(keys), parcel(keys)),
        cuts,
        Ends(rank, spread.ranks, spread.group, f"heads of {length} tokens", spread.ranks == 1),
    )
    heads_here = slice(0, size_of(mine))
    sends, places = tuple((heads_here, index) for index in at), tuple((heads, local) for heads in queries)
    back = replace(there, parcels=(Parcel(sends, places, Hq, size_of(local)),), cuts=((0, (slice(0, Hq), local)),))
    return HeadsPlan(there, back, mine, some_heads(mask, (mine.start, mine.stop, Hq)))


def _repeated(queries: slice, keys: slice, groups: int) -> Index:
    """Which of the key/value heads received each query head reads; all, where each serves an equal group."""
    read = [head // groups - keys.start for head in range(queries.start, queries.stop)]
    if len({read.count(key) for key in read}) == 1:
        return slice(0, size_of(keys))
    return torch.tensor(read)
