"""Additive scoring (Bahdanau): wᵀ tanh(q + k) in place of q·k, by tiles."""

from __future__ import annotations

import math
from contextlib import nullcontext

import torch
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function

from headwise.errors import ArgumentError
from headwise.masks import Mask
from headwise.ops import blockwise, reference
from headwise.ops.active_spread import check_not_spread
from headwise.ops.call import Call, autocasts, cast_by_autocast, checked
from headwise.ops.foreign_arguments import BY_PLACE, CALLING
from headwise.ops.triton_kernels import are_taken, why_not_additive
from headwise.wording.hints import hinted

# from how many sums q + k on tiles are faster than the definition: measured, docs/decisions.md
FEWEST_SUMS = 1 << 20


@hinted(CALLING, by_name=BY_PLACE)
def additive_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    weight: Tensor,
    *,
    mask: Mask | Tensor | None = None,
    dropout: float = 0.0,
    generator: torch.Generator | None = None,
) -> Tensor:
    """softmax(wᵀ tanh(q + k)) v over the keys that each query may see.

    q (B, Hq, Lq, D), k (B, Hk, Lk, D), v (B, Hk, Lk, Dv), weight (Hq, D), or (D,) for all heads -> (B, Hq, Lq, Dv).
    mask, dropout and generator as in `attention`. Memory is that of the scores of some rows. It is O(Lq·Lk·D)
    for transforms and second derivatives, and elsewhere than on the CPU wherever the Triton kernels are not taken: off
    a GPU, and there with dropout, in float64, in compiled code and for more than 128 features.
    Bahdanau et al. 2015, arXiv:1409.0473, appendix A.1.2.

    >>> import headwise as hw
    >>> q, k, v = torch.randn(2, 4, 3, 8), torch.randn(2, 4, 5, 8), torch.randn(2, 4, 5, 6)
    >>> hw.additive_attention(q, k, v, torch.randn(4, 8)).shape
    torch.Size([2, 4, 3, 6])
    """
    if has_torch_function((q, k, v, weight)):
        result: Tensor = handle_torch_function(
            additive_attention, (q, k, v, weight), q, k, v, weight, mask=mask, dropout=dropout, generator=generator
        )
        return result
    check_not_spread("hw.additive_attention")
    q, k, v = cast_by_autocast(q, k, v)
    call = checked(q, k, v, weight=weight_of_heads(weight, q), mask=mask, dropout=dropout, generator=generator)
    with torch.autocast(q.device.type, enabled=False) if autocasts(q) else nullcontext():
        if _is_of_kernels(call):
            from headwise.ops.triton_kernels.additive import attend

            return attend(call).out
        out: Tensor = (reference if _is_dense(call) else blockwise).run(call)
        return out


def weight_of_heads(weight: Tensor, q: Tensor) -> Tensor:
    """A weight (Hq, D), from one that may be (D,) for all heads of q (B, Hq, Lq, D)."""
    if not isinstance(weight, Tensor):
        raise ArgumentError(
            f"weight must be a tensor (Hq, D), or (D,) for all heads, but {type(weight).__name__} came: pass a tensor"
        )
    return weight.expand(q.shape[1], -1) if weight.ndim == 1 and isinstance(q, Tensor) and q.ndim == 4 else weight


def _is_of_kernels(call: Call) -> bool:
    """Whether the Triton kernels are to compute a call: on a GPU, where they can, and of many sums."""
    if call.q.device.type != "cuda" or _is_small(call) or why_not_additive(call):
        return False
    from headwise.ops.triton_kernels.additive import BLOCK

    return are_taken(call, BLOCK)


def _is_dense(call: Call) -> bool:
    """Whether the definition is to compute a call: of few sums, off the CPU, where a program leaves headwise."""
    return _is_small(call) or call.q.device.type != "cpu" or torch.compiler.is_exporting()


def _is_small(call: Call) -> bool:
    return math.prod(call.sizes) * call.q.shape[-1] < FEWEST_SUMS
