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
from headwise.distributed.sequences import Sequences
from headwise.distributed.spread import Spread
from headwise.distributed.whole_call import WholeCall
from headwise.masks import Mask
from headwise.masks.head_subset import some_heads
from headwise.ops.call import Call

# why no other way than gather is taken
KEYS_ARE_WHOLE = "every rank holds the keys whole, so that none need move"


@dataclass(frozen=True, eq=False)
class HeadsPlan:
    """The exchanges there and back, this rank's query heads, and the mask for them."""

    there: Route
    back: Route
    heads: slice
    mask: Mask | None


def why_not(call: Call, spread: Sequences) -> str:
    """Why heads cannot be traded for tokens; "" where they can."""
    Hq = call.q.shape[1]
    if spread.source is None:
        return KEYS_ARE_WHOLE
    ranks = spread.queries.ranks
    return f"Hq={Hq} query heads do not reach for {ranks} ranks" if Hq < ranks else ""


def run(call: WholeCall, spread: Sequences) -> Tensor:
    """The outputs of this rank's queries (B, Hq, Lq, Dv): an exchange, one call of its heads, and an exchange back."""
    planned = plan(call, spread)
    q, k, v = exchange(planned.there, call.q, call.k, call.v)
    rows, columns = (torch.arange(length) for length in spread.map_sizes(call.k.shape[2]))
    bias = call.bias_at(rows, columns, heads=planned.heads)
    some = call.block((q, k, v), planned.mask, bias, heads=planned.heads)
    out = attend(some, drops_at(call, rows, columns, planned.heads.start))
    return exchange(planned.back, out)[0]


def sent(call: Call, spread: Sequences) -> tuple[int, int]:
    """The bytes that the busiest rank receives forward, and in how many steps."""
    (B, Hq, _, D), Hk, Dv = call.q.shape, call.k.shape[1], call.v.shape[3]
    queries, source = spread.queries, spread.moved
    most = 0
    for rank, mine in enumerate(shares(Hq, queries.ranks)):
        rows, columns = (len(of.layout.tokens[rank]) for of in (queries, source))
        there = (queries.length - rows) * size_of(mine) * D
        there += (source.length - columns) * size_of(shared(mine, Hq // Hk)) * (D + Dv)
        most = max(most, there + rows * (Hq - size_of(mine)) * Dv)
    return most * B * call.q.element_size(), 2


def plan(call: Call, spread: Sequences) -> HeadsPlan:
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


def _planned(mask: Mask | None, spread: Sequences, Hq: int, Hk: int) -> HeadsPlan:
    of_queries, source = spread.queries, spread.moved
    rank, ranks, length = of_queries.rank, of_queries.ranks, of_queries.length
    queries = shares(Hq, ranks)
    keys = tuple(shared(heads, Hq // Hk) for heads in queries)
    mine = queries[rank]

    def parcel(shares: tuple[slice, ...], tokens: Spread) -> Parcel:
        count, local = size_of(shares[rank]), slice(0, len(tokens.own))
        places = tuple((slice(0, count), compact(index)) for index in tokens.layout.tokens)
        return Parcel(tuple((heads, local) for heads in shares), places, count, tokens.length)

    read = (_repeated(mine, keys[rank], Hq // Hk), slice(0, source.length))
    cuts: tuple[Cut, ...] = ((0, (slice(0, size_of(mine)), slice(0, length))), (1, read), (2, read))
    there = Route(
        (parcel(queries, of_queries), parcel(keys, source), parcel(keys, source)),
        cuts,
        Ends(rank, ranks, of_queries.group, f"heads of {length} tokens", ranks == 1),
    )
    heads_here, local = slice(0, size_of(mine)), slice(0, len(of_queries.own))
    sends = tuple((heads_here, compact(index)) for index in of_queries.layout.tokens)
    places = tuple((heads, local) for heads in queries)
    back = replace(there, parcels=(Parcel(sends, places, Hq, size_of(local)),), cuts=((0, (slice(0, Hq), local)),))
    return HeadsPlan(there, back, mine, some_heads(mask, (mine.start, mine.stop, Hq)))


def _repeated(queries: slice, keys: slice, groups: int) -> Index:
    """Which of the key/value heads received each query head reads; all, where each serves an equal group."""
    read = [head // groups - keys.start for head in range(queries.start, queries.stop)]
    if len({read.count(key) for key in read}) == 1:
        return slice(0, size_of(keys))
    return torch.tensor(read)
