"""Gather: each rank receives the keys and values that its queries may see, and attends to them as one process would."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from headwise.distributed import gathered
from headwise.distributed.dropout import attend, drops_at
from headwise.distributed.exchange import Ends, Parcel, Route, exchange
from headwise.distributed.gathered import Job, Piece, pieces_of
from headwise.distributed.index import Index, compact, size_of, take
from headwise.distributed.needed_keys import needs
from headwise.distributed.plan_cache import planned
from headwise.distributed.sequences import Sequences
from headwise.distributed.whole_call import WholeCall
from headwise.masks import Mask
from headwise.masks.selection import Picked
from headwise.masks.simplification import narrowed, places_of_runs
from headwise.masks.tiles import EMPTY
from headwise.ops.call import Call

# rows in more runs than these, of fewer tokens each, are attended to in one call, whose mask is asked pair by pair
MOST_RUNS, SHORT_RUN = 4, 128
# how many rows are asked together which columns they need
ROWS = 128


@dataclass(frozen=True, eq=False)
class RowPart:
    """Rows of this rank that attend in one call: which of the gathered columns they need, and the mask between them.

    tokens: the same columns (Lk,) of the whole sequence.
    """

    rows: slice
    columns: Index
    tokens: Tensor
    mask: Mask | None


@dataclass(frozen=True, eq=False)
class GatherPlan:
    """The exchange for one mask, and the calls after it. received: the columns that each rank has from others.

    route: None: every rank holds all columns. pieces: where the columns of this rank stand until they are attended to;
    None: in one tensor, on some rank.
    """

    route: Route | None
    parts: tuple[RowPart, ...]
    received: tuple[int, ...]
    pieces: tuple[Piece, ...] | None


def run(call: WholeCall, spread: Sequences) -> Tensor:
    """The outputs of this rank's queries (B, Hq, Lq, Dv): one exchange, then one call for each run of rows."""
    planned, held = plan(call, spread), call.k.shape[2]
    if planned.route is None or planned.pieces is None or gathered.why_not(call, spread.map_sizes(held)[1]):
        return _joined(planned, spread, call)
    joined = partial(_of_inputs, planned, spread)
    return gathered.run(call, Job(planned.route, planned.pieces, planned.parts, held, joined))


def _of_inputs(planned: GatherPlan, spread: Sequences, call: Call) -> Tensor:
    """The outputs of a call without biases."""
    return _joined(planned, spread, WholeCall(call.q, call.k, call.v, call.mask, scale=call.scale))


def _joined(planned: GatherPlan, spread: Sequences, call: WholeCall) -> Tensor:
    """The outputs by any rules, of keys and values that are joined in one tensor."""
    if planned.route is None:
        every = slice(0, call.k.shape[1])
        received = tuple(take(t, (every, part.columns)) for part in planned.parts for t in (call.k, call.v))
    else:
        received = exchange(planned.route, call.k, call.v)
    rows = call.q.split([size_of(part.rows) for part in planned.parts], dim=2)
    outs = []
    for number, part in enumerate(planned.parts):
        tokens = spread.tokens[part.rows]
        tensors = (rows[number], received[2 * number], received[2 * number + 1])
        block = call.block(tensors, part.mask, call.bias_at(tokens, part.tokens))
        outs.append(attend(block, drops_at(call, tokens, part.tokens)))
    return outs[0] if len(outs) == 1 else torch.cat(outs, dim=2)


def sent(call: Call, spread: Sequences) -> tuple[int, int]:
    """The bytes that the busiest rank receives forward, and in how many steps."""
    B, Hk, _, D = call.k.shape
    return max(plan(call, spread).received) * B * Hk * (D + call.v.shape[3]) * call.k.element_size(), 1


def plan(call: Call, spread: Sequences) -> GatherPlan:
    """What is gathered for a call, and in which parts it is attended to."""
    sizes = (*call.sizes[:2], call.k.shape[1], spread.map_sizes(call.k.shape[2])[1])
    return planned(_planned, call.mask, spread, *sizes)


def _planned(mask: Mask | None, spread: Sequences, B: int, Hq: int, Hk: int, Lk: int) -> GatherPlan:
    queries, source = spread.queries, spread.source
    rank, ranks, sizes = queries.rank, range(queries.ranks), (queries.length, Lk)
    if source is None:
        parts = parts_of(mask, queries.tokens, torch.arange(Lk), sizes, (B, Hq))
        return GatherPlan(None, parts, (0,) * queries.ranks, None)
    need = needs(mask, queries.layout, source.layout, batch=B, heads=Hq)
    columns = need.columns[rank]
    places = need.places(rank)
    parts = parts_of(mask, queries.tokens, columns, sizes, (B, Hq))
    received = tuple(need.received.sum(1).tolist())
    heads = slice(0, Hk)
    parcel = Parcel(
        tuple((heads, compact(need[r][rank])) for r in ranks),
        tuple((heads, compact(place)) for place in places),
        Hk,
        columns.shape[0],
    )
    ends = Ends(rank, queries.ranks, queries.group, f"gather of {Lk} tokens", max(received) == 0)
    cuts = tuple((tensor, (heads, part.columns)) for part in parts for tensor in (0, 1))
    pieces = pieces_of(need.columns, source.layout)
    return GatherPlan(Route((parcel, parcel), cuts, ends), parts, received, None if pieces is None else pieces[rank])


def parts_of(
    mask: Mask | None, rows: Tensor, columns: Tensor, lengths: tuple[int, int], sizes: tuple[int, int]
) -> tuple[RowPart, ...]:
    """The calls of some rows and columns (n,), both ascending: a run of rows in each, where these are few.

    The mask of a run is then one that kernels know, wherever the whole mask has such a part. lengths: Lq and Lk of the
    whole map. sizes: B and Hq.
    """
    if mask is None or not rows.shape[0]:
        return (RowPart(slice(0, rows.shape[0]), slice(0, columns.shape[0]), columns, None),)
    cut = places_of_runs(rows)
    if len(cut) > max(MOST_RUNS, rows.shape[0] // SHORT_RUN):
        cut = [slice(0, rows.shape[0])]
    return tuple(_part(mask, rows, run, columns, lengths, sizes) for run in cut)


def _part(
    mask: Mask, rows: Tensor, run: slice, columns: Tensor, lengths: tuple[int, int], sizes: tuple[int, int]
) -> RowPart:
    """One run of rows with the columns that it needs, column by column."""
    asked = Picked(mask, rows[run], columns, *lengths)
    kinds = asked.tiles(size_of(run), columns.shape[0], block=(ROWS, 1), batch=sizes[0], heads=sizes[1])
    # a mask with tensors on a device is asked there
    allowed = (kinds != EMPTY).flatten(0, 2).any(0).nonzero()[:, 0].cpu()
    tokens = columns[allowed]
    return RowPart(run, compact(allowed), tokens, narrowed(mask, rows[run], tokens, sizes=lengths))
