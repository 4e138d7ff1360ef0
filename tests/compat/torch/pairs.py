"""Pairs of nn.MultiheadAttention and its drop-in with the same weights, and calls of every form."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from headwise.compat.torch import MultiheadAttention
from headwise.testing import assert_within_budget
from tests.compat.agreement import randn

B, H, LQ, LK, E = 3, 2, 5, 7, 8
# every flag of the constructor alone, and some together
FLAGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "batch first": {"batch_first": True},
    "no bias": {"bias": False},
    "learned key": {"add_bias_kv": True},
    "zero key": {"add_zero_attn": True, "batch_first": True},
    "both keys": {"add_bias_kv": True, "add_zero_attn": True},
    "other widths": {"kdim": 6, "vdim": 9, "batch_first": True},
    "all at once": {"kdim": 6, "vdim": 9, "bias": False, "add_bias_kv": True, "add_zero_attn": True},
}


class Pair(NamedTuple):
    """torch's module in the dtype and in float64, and ours."""

    theirs: nn.MultiheadAttention
    exact: nn.MultiheadAttention
    ours: MultiheadAttention


def pair(*, dtype: torch.dtype = torch.float32, strict_torch: bool = False, seed: int = 0, **flags: Any) -> Pair:
    """Three modules of the same random weights, biases too."""
    theirs = nn.MultiheadAttention(E, H, dtype=dtype, **flags)
    for n, weight in enumerate(theirs.parameters()):
        nn.init.zeros_(weight).data.add_(randn(*weight.shape, seed=seed + n, dtype=dtype), alpha=0.5)
    exact = nn.MultiheadAttention(E, H, dtype=torch.float64, **flags)
    ours = MultiheadAttention(E, H, dtype=dtype, **flags, strict_torch=strict_torch)
    for module in (exact, ours):
        module.load_state_dict(theirs.state_dict())
    return Pair(theirs, exact, ours)


def inputs(layer: nn.MultiheadAttention, *, is_batched: bool = True) -> list[Tensor]:
    """query, key and value in float64 of float32 values, laid out as the layer takes them."""
    given = [randn(B, LQ, E, seed=1), randn(B, LK, layer.kdim, seed=2), randn(B, LK, layer.vdim, seed=3)]
    given = [t.float().double() for t in given]
    if not is_batched:
        return [t[0] for t in given]
    return given if layer.batch_first else [t.transpose(0, 1).contiguous() for t in given]


def masks(*, is_batched: bool = True, row: str = "open") -> Iterator[dict[str, Tensor | None]]:
    """Every form of the two masks, alone and together; row: "open", where each query sees the second key, or "any"."""
    blocked = randn(LQ, LK, seed=4) > 0.3
    each = randn(B * H, LQ, LK, seed=5) > 0.3
    padding = torch.zeros(B, LK, dtype=torch.bool)
    padding[0, 4:], padding[1, 0], padding[2, 3] = True, True, True
    if row == "open":
        blocked[:, 1], each[..., 1] = False, False
    if not is_batched:
        each, padding = each[:H], padding[0]

    def adding(mask: Tensor) -> Tensor:
        return randn(*mask.shape, seed=6).float().double().masked_fill(mask, float("-inf"))

    for attn_mask in (None, blocked, each, adding(blocked), adding(each)):
        for key_padding_mask in (None, padding, adding(padding)):
            yield {"attn_mask": attn_mask, "key_padding_mask": key_padding_mask}


def called(layer: nn.Module, given: list[Tensor], **options: Any) -> list[Tensor]:
    """The output and, in one row, all its gradients; then the same of the weights, where there are some.

    All in the dtype of the layer.
    """
    dtype = layer.out_proj.weight.dtype
    leaves = [t.to(dtype).requires_grad_() for t in given]
    options = {
        name: option.to(dtype) if isinstance(option, Tensor) and option.is_floating_point() else option
        for name, option in options.items()
    }
    found = []
    for n, result in enumerate(t for t in layer(*leaves, **options) if t is not None):
        slope = randn(*result.shape, seed=7 + n).float().to(dtype)
        gradients = torch.autograd.grad(
            result, [*leaves, *layer.parameters()], slope, retain_graph=True, allow_unused=True, materialize_grads=True
        )
        # in one row: a key's bias moves nothing, so alone its gradient would be nothing but rounding
        found += [result.detach(), torch.cat([gradient.flatten() for gradient in gradients])]
    return found


def assert_same(modules: Pair, given: list[Tensor], **options: Any) -> None:
    """Outputs, weights and gradients of ours are within the budget of torch's own."""
    results = [called(each, given, **options) for each in (modules.ours, modules.exact, modules.theirs)]
    # ours runs the same kernels whether weights are needed or not, so its output is measured by torch's without
    results[2][:2] = called(modules.theirs, given, **(options | {"need_weights": False}))
    for got, wanted, measure in zip(*results, strict=True):
        assert_within_budget(got, wanted, measure)
