"""Grouped queries: those of all heads that share a key/value head, as queries of one head: each key is read once.

torch's CPU kernel copies keys and values for every query head that shares them, which at few queries takes longer than
to attend: without the copies the kernel takes 0.55 of the time for one query of 32 heads and 4096 keys of 8 (AVX2).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from headwise.ops.call import Call

# up to so many queries with so many times as many keys are few
MOST_FEW, FEW = 64, 4


def are_few(call: Call) -> bool:
    """Whether a call has few queries beside its keys, as in decoding, so that reading these takes the time."""
    return call.sizes.Lq <= MOST_FEW and FEW * call.sizes.Lq <= call.sizes.Lk


def are_joined(call: Call) -> bool:
    """Whether torch's kernel is given the queries of all heads that share keys as those of one head.

    Not where a gradient is asked for: the node of the kernel must have saved q, k and v as they came. Of several
    queries not with a mask or a bias, which would have to be repeated for the heads.
    """
    return (
        call.groups > 1
        and call.q.is_cpu
        and not torch.compiler.is_compiling()
        and are_few(call)
        and (call.sizes.Lq == 1 or (call.mask is None and call.attn_bias is None))
        and not call.dropout
        and not call.is_differentiated
    )


def joined_scores(scores: Tensor | None, groups: int) -> Tensor | None:
    """What is added to the scores of one query, or a bool mask, (1, Lk) or broadcastable to (B, Hq, 1, Lk), for joined
    queries: broadcastable to (B, Hq / groups, groups, Lk); None: nothing.
    """
    if scores is None or scores.ndim == 2 or scores.shape[1] == 1:
        return scores
    by_group: Tensor = scores.unflatten(1, (-1, groups))
    return by_group.flatten(2, 3)


def attend(q: Tensor, k: Tensor, v: Tensor, scores: Tensor | None, groups: int, scale: float) -> Tensor:
    """torch's kernel on joined queries: q (B, Hq, Lq, D), k (B, Hq / groups, Lk, D), v like k -> (B, Hq, Lq, D).

    scores: as `joined_scores` gives them.
    """
    B, H, Lq, D = q.shape
    joined = q.reshape(B, H // groups, groups * Lq, D)
    out = F.scaled_dot_product_attention(joined, k, v, attn_mask=scores, scale=scale)
    return out.reshape(B, H, Lq, D)
