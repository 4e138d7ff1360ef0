"""Dropout: the same pairs of the whole map are dropped on any number of ranks, by a seed that all of them share."""

from __future__ import annotations

import torch.distributed as dist
from torch import Tensor

from headwise.distributed.lost import lost
from headwise.distributed.spread import Spread
from headwise.ops import attention, blockwise
from headwise.ops.call import Call
from headwise.ops.drops import drawn_seed
from headwise.ops.tile_drops import TileDrops

# under this name a call keeps its seed
SEED = "seed of drops"


def seeded(call: Call, spread: Spread) -> Call:
    """The call with the seed of its drops: that which rank 0 draws from its generator, on all ranks."""
    if not call.dropout:
        return call
    seed = drawn_seed(call.generator, call.q.device)
    if spread.group is not None and spread.ranks > 1:
        try:
            dist.broadcast(seed, group=spread.group, group_src=0)
        except RuntimeError as error:
            raise lost(error, spread.group, f"attention with dropout of {spread.length} tokens") from error
    call.prepared[SEED] = int(seed)
    return call


def drops_at(call: Call, rows: Tensor, columns: Tensor, first_head: int = 0) -> TileDrops | None:
    """The drops of some rows (n,) and columns (n,) of the whole map; None: the call has no dropout."""
    if not call.dropout:
        return None
    return TileDrops(call.dropout, call.prepared[SEED], rows, columns, first_head=first_head)


def attend(call: Call, drops: TileDrops | None) -> Tensor:
    """The outputs of a call (B, Hq, Lq, Dv), by any backend, or with these drops."""
    if drops is not None:
        return blockwise.outputs(call, drops)
    return attention(
        call.q, call.k, call.v, mask=call.mask, attn_bias=call.attn_bias, scale=call.scale, softcap=call.softcap,
        sink=call.sink,
    )  # fmt: skip
