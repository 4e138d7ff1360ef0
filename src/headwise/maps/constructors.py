"""Constructors: the maps of a call of `attention` or of `additive_attention`, from its arguments."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from headwise.errors import ArgumentError
from headwise.maps.map import AttentionMap
from headwise.maps.shared_map import SharedMap
from headwise.masks import Mask
from headwise.ops.active_spread import SpreadSequence
from headwise.ops.call import Rules, cast_by_autocast, checked
from headwise.ops.foreign_arguments import BY_PLACE, CALLING
from headwise.ops.shared_axis import SharedHeads
from headwise.positions.distance_bias import DistanceBias
from headwise.wording.hints import hinted

_BEFORE = "leave it out, since a map is of the weights before dropout"
NO_DROPOUT = {"dropout": _BEFORE, "dropout_p": _BEFORE, "generator": _BEFORE}


@hinted(CALLING | NO_DROPOUT, by_name=BY_PLACE)
def attention_map(
    q: Tensor,
    k: Tensor,
    *,
    mask: Mask | Tensor | None = None,
    attn_bias: Tensor | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    sink: Tensor | None = None,
    lse: Tensor | None = None,
) -> AttentionMap:
    """The weights of a call of `attention`, as a lazy map (B, Hq, Lq, Lk): nothing is computed yet.

    q (B, Hq, Lq, D), k (B, Hk, Lk, D); mask, attn_bias, scale, softcap and sink as in `attention`: see there what each
    means. lse: (B, Hq, Lq), what a kernel gave for this very call, as natural log with the sink in it, which then need
    not be computed; on a row without a key it may be 0.0, -inf or +inf. None: not known. `natural_lse` converts from
    base 2, and `AttentionMap.check` says whether an lse fits. q and k are held, not copied.

    >>> import torch, headwise as hw
    >>> m = hw.attention_map(torch.randn(2, 8, 5, 16), torch.randn(2, 2, 7, 16), softcap=30.0)
    >>> m.shape
    torch.Size([2, 8, 5, 7])
    >>> m[0, -1].shape, m.entropy().shape, m.topk(3)[0].shape
    (torch.Size([5, 7]), torch.Size([2, 8, 5]), torch.Size([2, 8, 5, 3]))
    """
    rules: Rules = {"mask": mask, "attn_bias": attn_bias, "scale": scale, "softcap": softcap, "sink": sink}
    q, k, _ = cast_by_autocast(q, k, k)
    return AttentionMap(checked(q, k, k, **rules), lse)


@hinted(CALLING | NO_DROPOUT, by_name=BY_PLACE)
def additive_map(
    q: Tensor,
    k: Tensor,
    weight: Tensor,
    *,
    mask: Mask | Tensor | None = None,
    lse: Tensor | None = None,
) -> AttentionMap:
    """The weights of a call of `additive_attention`, as a lazy map (B, Hq, Lq, Lk).

    q (B, Hq, Lq, D), k (B, Hk, Lk, D), weight (Hq, D), or (D,) for all heads; mask and lse as in `attention_map`.

    >>> import torch
    >>> additive_map(torch.zeros(1, 2, 3, 8), torch.zeros(1, 2, 4, 8), torch.ones(8))[0, 1, 2]
    tensor([0.2500, 0.2500, 0.2500, 0.2500])
    """
    if not isinstance(weight, Tensor):
        raise ArgumentError(
            f"weight must be a tensor (Hq, D), or (D,) for all heads, but {type(weight).__name__} came: pass a tensor"
        )
    q, k, _ = cast_by_autocast(q, k, k)
    per_head = weight.expand(q.shape[1], -1) if weight.ndim == 1 and isinstance(q, Tensor) and q.ndim == 4 else weight
    return AttentionMap(checked(q, k, k, weight=per_head, mask=mask), lse)


def shared_map(
    q: Tensor,
    k: Tensor,
    *,
    spread: SpreadSequence | None,
    heads: SharedHeads | None,
    weight: Tensor | None = None,
    mask: Mask | None = None,
    attn_bias: Tensor | None = None,
    distance_bias: DistanceBias | None = None,
    lse: Tensor | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    sink: Tensor | None = None,
) -> SharedMap:
    """The weights of a call that ranks share, each of which gives what it has of q and k; see `SharedMap`.

    mask, attn_bias: of a spread those of the whole map, else as in `attention_map`, for this rank's heads.
    distance_bias: of the whole map too, added to attn_bias, None: nothing. weight: (Hq, D) of additive scores, None: of
    dot products. spread, heads: what is shared, None: it is not.
    """
    rules: Rules = {"scale": scale, "softcap": softcap, "sink": sink}
    q, k, _ = cast_by_autocast(q, k, k)
    # the mask and bias of a spread are of more rows than q has
    call = replace(checked(q, k, k, weight=weight, **rules), mask=mask, attn_bias=attn_bias)
    return SharedMap(call, lse, spread=spread, heads=heads, distance_bias=distance_bias)
