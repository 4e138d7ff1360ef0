"""Score calls: a call of attention made of scores alone, where their queries and keys are not known."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from headwise.ops.call import Call

__all__ = ["scores_held", "terms_of"]


def terms_of(scores: Tensor) -> dict[str, Any]:
    """What `attention_map` takes for a map over scores (B, H, Lq, Lk), -inf where a pair may not attend.

    They are the bias of queries and keys that have one feature, which is 0. Memory is O(L²), that of the scores.

    >>> import torch, headwise as hw
    >>> hw.attention_map(**terms_of(torch.tensor([[[[0.0, float("-inf")], [1.0, 1.0]]]])))[0, 0]
    tensor([[1.0000, 0.0000],
            [0.5000, 0.5000]])
    """
    B, H, Lq, Lk = scores.shape
    nothing = scores.new_zeros(())
    return {
        "q": nothing.expand(B, H, Lq, 1), "k": nothing.expand(B, 1, Lk, 1), "attn_bias": scores, "scale": 1.0,
    }  # fmt: skip


def scores_held(call: Call) -> Tensor | None:
    """The scores of a call that `terms_of` has made; None: it has queries and keys of its own."""
    bias = call.attn_bias
    if bias is None or call.q.shape[-1] != 1 or call.q.device.type == "meta" or tuple(bias.shape) != call.sizes:
        return None
    return None if bool(call.q.any()) else bias
