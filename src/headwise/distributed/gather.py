"""Gather: each rank receives the keys and values that its queries may see, and attends to them as one process would."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from headwise.distributed.exchange import Parcel, Route, exchange
from headwise.distributed.index import Index, compact, runs, size_of
from headwise.distributed.kept import planned
from headwise.distributed.needs import needs
from headwise.distributed.spread import Spread
from headwise.masks import Mask
from headwise.masks.narrowed import narrowed
from headwise.masks.picked import picked
from headwise.masks.tiles import EMPTY
from headwise.ops.attention import attention
from headwise.ops.call import Call

# rows in more runs than these are attended to in one call, whose mask is asked pair by pair
MOST_RUNS = 4
# how many rows are asked together which columns they need
ROWS = 128


@dataclass(frozen=True, eq=False)
class Part:
    """Rows of this rank that attend in one call: which of the gathered columns they need, and the mask between them.

    tokens: the same columns (Lk,) of the whole sequence.
    """

    rows: slice
    columns: Index
    tokens: Tensor
    mask: Mask | None


@dataclass(frozen=True, eq=False)
class Plan:
    """The exchange for one mask, and the calls after it. received: the columns that each rank has from others."""

    route: Route
    parts: tuple[Part, ...]
    received: tuple[int, ...]


def why_not(call: Call, spread: Spread) -> str:
    """Why keys and values cannot be gathered; "": they can always be."""
    return ""


def run(call: Call, spread: Spread) -> Tensor:
    """The outputs of this rank's queries (B, Hq, Lq, Dv): one exchange, then one call for each run of rows."""
    made = plan(call, spread)
    found = exchange(made.route, call.k, call.v)
    outs = []
    for number, part in enumerate(made.parts):
        bias = None if call.attn_bias is None else bias_at(call.attn_bias, spread.tokens[part.rows], part.tokens)
        outs.append(
            attention(
                call.q[:, :, part.rows], found[2 * number], found[2 * number + 1], mask=part.mask, attn_bias=bias,
                scale=call.scale, softcap=call.softcap, sink=call.sink,
            )  # fmt: skip
        )
    return outs[0] if len(outs) == 1 else torch.cat(outs, dim=2)


def plan(call: Call, spread: Spread) -> Plan:
    """What is gathered for a call, and in which parts it is attended to."""
    sizes = (*call.sizes[:2], call.k.shape[1])
    return planned(call.mask, spread, ("gather", *sizes), lambda: _planned(call.mask, spread, *sizes))


def bias_at(bias: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Some rows and columns of a bias of the whole map; an axis of size 1 serves all."""
    if bias.shape[-2] > 1:
        bias = bias.index_select(-2, rows.to(bias.device))
    return bias.index_select(-1, columns.to(bias.device)) if bias.shape[-1] > 1 else bias


def _planned(mask: Mask | None, spread: Spread, B: int, Hq: int, Hk: int) -> Plan:
    tokens, rank, ranks = spread.layout.tokens, spread.rank, range(spread.ranks)
    need = needs(mask, spread.layout, batch=B, heads=Hq)
    columns, order = torch.cat([tokens[s][need[rank][s]] for s in ranks]).sort()
    stands = torch.empty_like(order).scatter_(0, order, torch.arange(order.shape[0]))
    places = stands.split([need[rank][s].shape[0] for s in ranks])
    parts = _parts(mask, spread, columns, B, Hq)
    received = tuple(sum(need[r][s].shape[0] for s in ranks if s != r) for r in ranks)
    heads = slice(0, Hk)
    parcel = Parcel(
        tuple((heads, compact(need[r][rank])) for r in ranks),
        tuple((heads, compact(place)) for place in places),
        Hk,
        columns.shape[0],
    )
    cuts = tuple((tensor, (heads, part.columns)) for part in parts for tensor in (0, 1))
    return Plan(Route((parcel, parcel), cuts, rank, spread.group, max(received) == 0), parts, received)


def _parts(mask: Mask | None, spread: Spread, columns: Tensor, B: int, Hq: int) -> tuple[Part, ...]:
    """The rows of this rank in runs where they are few, so that the mask of each is one that kernels know."""
    mine, length = spread.tokens, spread.length
    all_rows, all_columns = slice(0, mine.shape[0]), slice(0, columns.shape[0])
    if mask is None or not mine.shape[0]:
        return (Part(all_rows, all_columns, columns, None),)
    cut = runs(mine)
    if len(cut) <= MOST_RUNS:
        return tuple(_part(mask, mine, rows, columns, length, B, Hq) for rows in cut)
    return (Part(all_rows, all_columns, columns, narrowed(mask, mine, columns, sizes=(length, length))),)


def _part(mask: Mask, mine: Tensor, rows: slice, columns: Tensor, length: int, B: int, Hq: int) -> Part:
    """One run of rows with the columns that it needs, column by column."""
    asked = picked(mask, mine[rows], columns, sizes=(length, length))
    if asked is None:
        return Part(rows, slice(0, columns.shape[0]), columns, None)
    kinds = asked.tiles(size_of(rows), columns.shape[0], block=(ROWS, 1), batch=B, heads=Hq)
    seen = (kinds != EMPTY).flatten(0, 2).any(0).nonzero()[:, 0]
    tokens = columns[seen]
    return Part(rows, compact(seen), tokens, narrowed(mask, mine[rows], tokens, sizes=(length, length)))
