"""Repeated calls: those like one that was checked before go straight to torch's kernel."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import forward_ad

from headwise.masks import Mask
from headwise.masks.derived import table
from headwise.ops import sdpa
from headwise.ops.call import Call, Rules

# calls without a mask that are remembered; a mask keeps its own
MOST_CALLS = 256
# a mask as scores to add is kept up to this many, where torch makes them anew of a bool tensor in each call
MOST_SCORES_KEPT = 1 << 20

PLAIN = (Tensor, nn.Parameter)

_without_mask: dict[Hashable, RepeatedCall] = {}


@dataclass(slots=True, frozen=True)
class RepeatedCall:
    """The arguments of torch's kernel beside q, k and v, for calls of the same shapes, dtypes, flags and mask.

    attn_mask: scores to add, broadcastable to (B, Hq, Lq, Lk), None: all pairs, or is_causal. has_tail: whether
    the kernel may take a row of NaN for one that may attend to nothing.
    """

    attn_mask: Tensor | None
    is_causal: bool
    scale: float
    is_grouped: bool
    has_tail: bool

    def run(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask | None) -> tuple[Tensor, bool]:
        """What torch's kernel gives (B, Hq, Lq, Dv), and whether it is the result.

        It is not where NaN or inf may have come in: that is left to the checked way, which takes it from here.
        """
        out = F.scaled_dot_product_attention(
            q, k, v, self.attn_mask, 0.0, self.is_causal, scale=self.scale, enable_gqa=self.is_grouped
        )
        if self.attn_mask is not None and not sdpa.is_unharmed(out, k):
            return out, False
        if self.has_tail and not sdpa.has_no_zero(out):
            return out, False
        if out.requires_grad:
            rules = {"mask": mask, "attn_bias": None, "scale": self.scale, "dropout": 0.0}
            return out, sdpa.twice_differentiable(out, rules)
        return out, True


def key_of(q: Tensor, k: Tensor, v: Tensor, rules: Rules, backend: str) -> Hashable | None:
    """All that the checks of a call and the choice of its backend read beside the mask; None: it must be checked.

    None: while compiling, under a transform, a dispatch mode or autocast, for tensors that are not plain ones on the
    CPU, and with rules that torch's kernel has not.
    """
    if torch.compiler.is_compiling() or (backend != "auto" and backend != "sdpa"):
        return None
    if (
        rules["attn_bias"] is not None
        or rules["softcap"] is not None
        or rules["sink"] is not None
        or rules["generator"] is not None
        or type(rules["dropout"]) not in (float, int)
        or rules["dropout"] != 0
    ):
        return None
    scale = rules["scale"]
    # 1.0, 1 and True are one key, and True is refused
    if scale is not None and type(scale) is not float:
        return None
    for t in (q, k, v):
        if type(t) not in PLAIN or not t.is_cpu or t.layout is not torch.strided or t.stride()[-1:] != (1,):
            return None
    if (
        torch._C._functorch.peek_interpreter_stack() is not None
        or torch._C._len_torch_dispatch_stack()
        or forward_ad._current_level >= 0
        or torch.is_autocast_enabled("cpu")
        or not torch._C._get_flash_sdp_enabled()
    ):
        return None
    return q.shape, k.shape, v.shape, q.dtype, k.dtype, v.dtype, scale, backend


def find(mask: Mask | Tensor | None, key: Hashable) -> RepeatedCall | None:
    """The call with this mask and key that was checked before; None: there was none."""
    known = _known(mask)
    return None if known is None else known.get(key)


def remember(call: Call, key: Hashable) -> None:
    """Keep what torch's kernel was given for a checked call.

    Not where it was given copies of q, k or v, or a mask too large to be kept.
    """
    at = sdpa.arguments(call)
    if at.q is not call.q or at.k is not call.k or at.v is not call.v:
        return
    scores = at.attn_mask
    if scores is not None:
        if scores.numel() > MOST_SCORES_KEPT:
            return
        with torch.inference_mode(False):
            scores = torch.zeros(scores.shape, dtype=call.q.dtype).masked_fill_(~scores, float("-inf"))
    has_tail = call.k.shape[2] % sdpa.VECTOR > 0
    repeated = RepeatedCall(scores, at.is_causal, call.multiplier, call.groups > 1, has_tail)
    if call.mask is None:
        if len(_without_mask) >= MOST_CALLS:
            _without_mask.pop(next(iter(_without_mask)), None)
        _without_mask[key] = repeated
    elif (kept := table(call.mask)) is not None:
        kept.add(key, repeated, 0 if scores is None else scores.nbytes)


def _known(mask: Mask | Tensor | None) -> dict[Hashable, RepeatedCall] | None:
    if mask is None:
        return _without_mask
    kept = table(mask) if isinstance(mask, Mask) else None
    return None if kept is None else kept.results
