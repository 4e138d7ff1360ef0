"""Dropout: the same pairs of the whole map are dropped on any number of ranks, by a seed that all of them share."""

from __future__ import annotations

import torch.distributed as dist
from torch import Tensor

from headwise.distributed.rank_failure import lost
from headwise.distributed.sequences import Sequences
from headwise.distributed.whole_call import WholeCall
from headwise.ops import additive_attention, attention, blockwise
from headwise.ops.call import Call
from headwise.ops.dropout import drawn_seed
from headwise.ops.tile_dropout import TileDrops

# under these names a call keeps its seed, and which of the layer's heads its first one is
SEED, FIRST_HEAD = "seed of drops", "first head of drops"


def seeded(call: WholeCall, spread: Sequences, first_head: int = 0, seed: Tensor | None = None) -> WholeCall:
    """The call with the seed of its drops on all ranks: that of rank 0, drawn from its generator where seed is None.

    first_head: which head of the whole map the call's first one is, where heads are split over other ranks.
    """
    if not call.dropout:
        return call
    rank_seed = drawn_seed(call.generator, call.q.device) if seed is None else seed
    queries = spread.queries
    if queries.group is not None and queries.ranks > 1:
        rank_seed = shared_seed(rank_seed, queries.group, f"attention with dropout of {queries.length} tokens")
    call.prepared.update({SEED: int(rank_seed), FIRST_HEAD: first_head})
    return call


def shared_seed(seed: Tensor, group: dist.ProcessGroup, call: str) -> Tensor:
    """The seed that the first rank of a group has, on all of them; call: what it is for, in words."""
    try:
        dist.broadcast(seed, group=group, group_src=0)
    except RuntimeError as error:
        raise lost(error, group, call) from error
    return seed


def drops_at(call: Call, rows: Tensor, columns: Tensor, first_head: int = 0) -> TileDrops | None:
    """The drops of some rows (n,) and columns (n,) of the whole map; None: the call has no dropout.

    first_head: which of the call's own heads the first one is.
    """
    if not call.dropout:
        return None
    first = call.prepared[FIRST_HEAD] + first_head
    return TileDrops(call.dropout, call.prepared[SEED], rows, columns, first_head=first)


def attend(call: Call, drops: TileDrops | None) -> Tensor:
    """The outputs of a call (B, Hq, Lq, Dv), by any backend, or with these drops."""
    if drops is not None:
        return blockwise.outputs(call, drops)
    if call.weight is not None:
        return additive_attention(call.q, call.k, call.v, call.weight, mask=call.mask)
    return attention(
        call.q, call.k, call.v, mask=call.mask, attn_bias=call.attn_bias, scale=call.scale, softcap=call.softcap,
        sink=call.sink,
    )  # fmt: skip
