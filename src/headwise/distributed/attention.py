"""The public functions of a sequence that is spread over ranks: check a call, agree on it, and run it a way."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any, Unpack

import torch
from torch import Tensor

from headwise.distributed.agreement import agreed
from headwise.distributed.dropout import attend, drops_at, seeded
from headwise.distributed.sequences import Sequences, SpreadPair
from headwise.distributed.spread import Spread
from headwise.distributed.ways import WayChoice, check_name, choose, report
from headwise.distributed.whole_call import WholeCall
from headwise.errors import ArgumentError, BackendError, ShapeError
from headwise.masks import Mask, as_mask
from headwise.masks.coordinates import Sizes
from headwise.ops.active_spread import suspended
from headwise.ops.additive import weight_of_heads
from headwise.ops.call import Rules, autocasts, cast_by_autocast, check_bias, checked, transformed
from headwise.ops.spread_attention import spread_attention
from headwise.positions.distance_bias import DistanceBias


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    spread: Spread | SpreadPair,
    way: str = "auto",
    weight: Tensor | None = None,
    mask: Mask | Tensor | None = None,
    attn_bias: Tensor | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    sink: Tensor | None = None,
    dropout: float = 0.0,
    generator: torch.Generator | None = None,
) -> Tensor:
    """`hw.attention` of a sequence whose tokens are spread over ranks: the numbers of one process, on any number.

    q (B, Hq, L_r, D), k (B, Hk, S_r, D), v (B, Hk, S_r, Dv) -> (B, Hq, L_r, Dv), for the L_r tokens that this rank
    holds, `spread.tokens`. Those are its keys too, S_r = L_r, but of `spread.with_keys(source)`: there they are
    the rank's tokens of source, or all S keys where source is None. mask and attn_bias are those of the whole map,
    (L, S) or broadcastable to (B, Hq, L, S), the same on every rank; the other rules are those of `hw.attention`.
    weight: (Hq, D) or (D,), for the scores of `hw.additive_attention`, which takes mask and dropout only; None: scores
    are dot products. dropout drops the same pairs on any number of ranks, by a seed that rank 0 draws. way: "auto",
    which takes the one that moves least, or one that `ways` lists, which then runs or raises.

    Every rank must make the same call, and its backward pass, in the same order; the first call of a shape compares
    what the ranks give. The gradients of weight, sink, attn_bias, and of keys that each rank holds whole are this
    rank's share: summed over ranks they are whole, as for any parameter that ranks hold alike.

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
    return spread_attention(q, k, v, spread=spread, way=way, weight=weight, **rules)


class WholeRules(Rules, total=False):
    """The rules of a call over ranks: `Rules`, the weight of additive scores, and a bias by distance."""

    weight: Tensor | None
    distance_bias: DistanceBias | None


def attend_spread(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    spread: Sequences,
    way: str,
    first_head: int = 0,
    seed: Tensor | None = None,
    **rules: Unpack[WholeRules],
) -> Tensor:
    """What `attention` gives, unheard by a watch, of some heads of a layer: from first_head on.

    seed: of dropout, which the ranks have too that compute the other heads; None: drawn here.
    """
    q, k, v = cast_by_autocast(q, k, v)
    call = agreed(spread, way, q.device, lambda: checked_call(q, k, v, spread, **rules))
    with suspended(), torch.autocast(q.device.type, enabled=False) if autocasts(q) else nullcontext():
        call = seeded(call, spread, first_head, seed)
        if spread.queries.ranks == 1:
            check_name(way)
            rows, columns = spread.tokens, spread.key_tokens(k.shape[2])
            block = call.block((call.q, call.k, call.v), call.mask, call.bias_at(rows, columns))
            return attend(block, drops_at(call, rows, columns))
        return choose(call, spread, way).run(call, spread)


def ways(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    spread: Spread | SpreadPair,
    way: str = "auto",
    weight: Tensor | None = None,
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
    call = checked_call(q, k, v, spread, weight=weight, **rules)
    return report(call, spread, way)


def checked_call(q: Tensor, k: Tensor, v: Tensor, spread: Sequences, **rules: Unpack[WholeRules]) -> WholeCall:
    """The call of this rank's q, k and v, with the mask and biases of the whole map, if all fit each other."""
    mask, attn_bias = as_mask(rules.pop("mask", None)), rules.pop("attn_bias", None)
    weight, (numbers, distances) = rules.pop("weight", None), rules.pop("distance_bias", None) or (None, None)
    if weight is not None:
        weight = weight_of_heads(weight, q)
        _check_additive(attn_bias, rules)
    call = checked(q, k, v, weight=weight, **rules)  # type: ignore[misc]  # what is no rule of one process is out
    _check_tokens(q, k, spread)
    sizes = Sizes(q.shape[0], q.shape[1], *spread.map_sizes(k.shape[2]))
    if mask is not None:
        mask.check(sizes)
    if attn_bias is not None:
        check_bias(attn_bias, sizes)
    if call.dropout and not q.is_cpu:
        raise BackendError(
            f"dropout={call.dropout} is drawn alike on any number of ranks on the CPU only, but q is on {q.device}: "
            "use dropout=0 there"
        )
    whole = WholeCall(
        q, k, v, mask, weight, attn_bias, call.scale, call.softcap, call.sink, call.dropout, call.generator,
        by_distance=numbers, distances=distances,
    )  # fmt: skip
    if not torch.compiler.is_compiling() and transformed(whole):
        raise BackendError(
            "a call that is spread over ranks has no rule for torch.func transforms and forward-mode derivatives: "
            "use torch.autograd, or hw.attention in one process"
        )
    return whole


def _check_tokens(q: Tensor, k: Tensor, spread: Sequences) -> None:
    """Raise unless q and k hold this rank's tokens of the sequences that they are of."""
    of_keys = () if spread.source is None else (("k", k, spread.source),)
    for name, t, held in (("q", q, spread.queries), *of_keys):
        if t.shape[2] != len(held.own):
            raise ShapeError(
                f"{name} must hold the {len(held.own)} tokens of rank {held.rank}, of {held.length} on {held.ranks} "
                f"ranks, but holds {t.shape[2]}: take them with spread.local(x, dim=1) before the projections"
            )


def _check_additive(attn_bias: Tensor | None, rules: Mapping[str, Any]) -> None:
    """Raise where additive scores come with a rule of dot products."""
    others = {"attn_bias": attn_bias, **{name: rules.get(name) for name in ("scale", "softcap", "sink")}}
    came = [name for name, value in others.items() if value is not None]
    if came:
        raise ArgumentError(
            f"{came[0]}= is a rule of dot products, but weight= came, for additive scores: leave one of them out"
        )
