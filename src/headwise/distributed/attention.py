"""The public functions of a sequence that is spread over ranks: check a call, agree on it, and run it a way."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Unpack

import torch
from torch import Tensor

from headwise.distributed.agreement import agreed
from headwise.distributed.dropout import attend, drops_at, seeded
from headwise.distributed.spread import Spread
from headwise.distributed.ways import WayChoice, check_name, choose, report
from headwise.errors import BackendError, ShapeError
from headwise.masks import Mask, as_mask
from headwise.masks.coordinates import Sizes
from headwise.ops.active_spread import suspended
from headwise.ops.call import Call, Rules, autocasts, cast_by_autocast, check_bias, checked, transformed
from headwise.ops.spread_attention import spread_attention


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    spread: Spread,
    way: str = "auto",
    mask: Mask | Tensor | None = None,
    attn_bias: Tensor | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    sink: Tensor | None = None,
    dropout: float = 0.0,
    generator: torch.Generator | None = None,
) -> Tensor:
    """`hw.attention` of a sequence whose tokens are spread over ranks: the numbers of one process, on any number.

    q (B, Hq, L_r, D), k (B, Hk, L_r, D), v (B, Hk, L_r, Dv) -> (B, Hq, L_r, Dv), for the L_r tokens that this rank
    holds, `spread.tokens`. mask and attn_bias are those of the whole sequence, (L, L) or broadcastable to
    (B, Hq, L, L), the same on every rank; the other rules are those of `hw.attention`. dropout drops the same pairs on
    any number of ranks, by a seed that rank 0 draws. way: "auto", which takes the one that moves least, or one that
    `ways` lists, which then runs or raises.

    Every rank must make the same call, and its backward pass, in the same order; the first call of a shape compares
    what the ranks give. The gradients of sink and attn_bias are this rank's share: summed over ranks they are whole, as
    for any parameter that ranks hold alike.

    Raises ShapeError, MaskError, ArgumentError or BackendError, each with the sizes that came, and DistributedError
    where ranks disagree or one does not come.

    >>> import headwise as hw
    >>> here, x = hw.distributed.spread(6), torch.randn(2, 4, 6, 8)
    >>> hw.distributed.attention(x, x, x, spread=here, mask=hw.causal()).shape
    torch.Size([2, 4, 6, 8])
    """
    rules: Rules = {
        "mask": mask, "attn_bias": attn_bias, "scale": scale, "softcap": softcap, "sink": sink, "dropout": dropout,
        "generator": generator,
    }  # fmt: skip
    return spread_attention(q, k, v, spread=spread, way=way, **rules)


def attend_spread(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    spread: Spread,
    way: str,
    first_head: int = 0,
    seed: Tensor | None = None,
    **rules: Unpack[Rules],
) -> Tensor:
    """What `attention` gives, unheard by a watch, of some heads of a layer: from first_head on.

    seed: of dropout, which the ranks have too that compute the other heads; None: drawn here.
    """
    q, k, v = cast_by_autocast(q, k, v)
    call = agreed(spread, way, q.device, lambda: checked_call(q, k, v, spread, **rules))
    with suspended(), torch.autocast(q.device.type, enabled=False) if autocasts(q) else nullcontext():
        call = seeded(call, spread, first_head, seed)
        if spread.ranks == 1:
            check_name(way)
            return attend(call, drops_at(call, spread.tokens, spread.tokens))
        return choose(call, spread, way).run(call, spread)


def ways(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    spread: Spread,
    way: str = "auto",
    mask: Mask | Tensor | None = None,
    attn_bias: Tensor | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    sink: Tensor | None = None,
    dropout: float = 0.0,
    generator: torch.Generator | None = None,
) -> WayChoice:
    """Which way would run this call of `attention`, and for each of the others one sentence on why not.

    Takes what `attention` takes; computes nothing, and talks to no rank.

    >>> import headwise as hw
    >>> here, x = hw.distributed.spread(6), torch.randn(2, 4, 6, 8)
    >>> ways(x, x, x, spread=here, way="ring")
    gather   could run: the busiest rank receives 0 bytes in 1 step
    heads    could run: the busiest rank receives 0 bytes in 2 steps
    queries  could run: the busiest rank receives 0 bytes in 2 steps
    ring     runs: the busiest rank receives 0 bytes in 0 steps
    """
    q, k, v = cast_by_autocast(q, k, v)
    rules: Rules = {
        "mask": mask, "attn_bias": attn_bias, "scale": scale, "softcap": softcap, "sink": sink, "dropout": dropout,
        "generator": generator,
    }  # fmt: skip
    call = checked_call(q, k, v, spread, **rules)
    return report(call, spread, way)


def checked_call(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    spread: Spread,
    **rules: Unpack[Rules],
) -> Call:
    """The call of this rank's q, k and v, with the mask and bias of the whole sequence, if all fit each other."""
    mask, attn_bias = as_mask(rules.pop("mask", None)), rules.pop("attn_bias", None)
    call = checked(q, k, v, **rules)
    mine, B, Hq = spread.tokens.shape[0], *q.shape[:2]
    for name, t in (("q", q), ("k", k)):
        if t.shape[2] != mine:
            raise ShapeError(
                f"{name} must hold the {mine} tokens of rank {spread.rank}, of {spread.length} on {spread.ranks} "
                f"ranks, but holds {t.shape[2]}: take them with spread.local(x, dim=1) before the projections"
            )
    sizes = Sizes(B, Hq, spread.length, spread.length)
    if mask is not None:
        mask.check(sizes)
    if attn_bias is not None:
        check_bias(attn_bias, sizes)
    if call.dropout and not q.is_cpu:
        raise BackendError(
            f"dropout={call.dropout} is drawn alike on any number of ranks on the CPU only, but q is on {q.device}: "
            "use dropout=0 there"
        )
    placed_call = replace(call, mask=mask, attn_bias=attn_bias)
    if not torch.compiler.is_compiling() and transformed(placed_call):
        raise BackendError(
            "a call that is spread over ranks has no rule for torch.func transforms and forward-mode derivatives: "
            "use torch.autograd, or hw.attention in one process"
        )
    return placed_call
