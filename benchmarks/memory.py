"""Peak memory of what a dense map would not let one do: each case is also run small, against the dense map."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

import headwise as hw
from benchmarks.harness import OUR_MEGABYTES, RATIO, Case, Cases, Tensors, compare
from benchmarks.kernels import Shape, additive, inputs
from benchmarks.maps import by_head
from headwise.maps import attention_map

# what a library keeps for its next call, it keeps of the small run, which is not counted
SMALL = 384


def memory() -> Cases:
    """Extra memory at the peak of one call."""
    yield additive_memory(Shape(512, D=16), target=50)
    yield entropy_gradient(Shape(8192), target=500)
    yield whole_map(Shape(32768, H=12), top=8, pixels=512, target=1000)


def additive_memory(at: Shape, *, target: float | None = None) -> Case:
    """One forward of additive scoring beside its formula as one writes it."""
    case = additive(at)
    shape = f"{at} h={at.H * at.D}"
    return Case(
        case.name, case.beside, shape, case.dtype, case.ours, case.theirs, case.check, RATIO, target, is_in_bytes=True
    )


def entropy_gradient(at: Shape, *, target: float | None = None) -> Case:
    """The gradient of a map's mean entropy to q and k."""

    q, k, few_q, few_k = (t.requires_grad_() for shape in (at, _small(at)) for t in inputs(shape, torch.float32)[:2])

    def run(q: Tensor, k: Tensor) -> Tensors:
        return torch.autograd.grad(attention_map(q, k).entropy().mean(), (q, k))

    def plain(dtype: torch.dtype) -> Tensors:
        q, k = (t.detach().to(dtype).requires_grad_() for t in (few_q, few_k))
        (entropy,) = by_head(lambda weights, scores: (torch.special.entr(weights).sum(-1),), q, k, dtype=dtype)
        return torch.autograd.grad(entropy.mean(), (q, k))

    def check() -> None:
        compare("ours", run(few_q, few_k), plain(torch.float64), plain(torch.float32))

    return Case(
        "gradient of entropy", _dense(at), str(at), "float32", lambda: run(q, k), None, check, OUR_MEGABYTES, target,
        is_in_bytes=True, is_long=True,
    )  # fmt: skip


def whole_map(at: Shape, *, top: int, pixels: int, target: float | None = None) -> Case:
    """Output, lse, entropy, column sums, largest weights and a picture of one call."""

    whole, few = (inputs(shape, torch.float32)[:3] for shape in (at, _small(at)))

    def run(qkv: Tensors, pixels: int) -> Tensors:
        q, k, v = qkv
        with torch.no_grad():
            out, m = hw.attention(q, k, v), attention_map(q, k)
            return out, m.lse, m.entropy(), m.received(), m.topk(top)[0], m.pooled(pixels, pixels)

    def plain(dtype: torch.dtype, pixels: int) -> Tensors:
        q, k, v = few

        def all_of(weights: Tensor, scores: Tensor) -> Tensors:
            return (
                weights, scores.logsumexp(-1), torch.special.entr(weights).sum(-1), weights.sum(-2),
                weights.topk(top).values, F.adaptive_avg_pool2d(weights, pixels),
            )  # fmt: skip

        weights, *rest = by_head(all_of, q, k, dtype=dtype)
        return weights @ v.to(dtype), *rest

    def check() -> None:
        side = min(pixels, _small(at).L // 8)
        compare("ours", run(few, side), plain(torch.float64, side), plain(torch.float32, side))

    return Case(
        "all of a map", _dense(at), str(at), "float32", lambda: run(whole, pixels), None, check, OUR_MEGABYTES, target,
        is_in_bytes=True, is_long=True,
    )  # fmt: skip


def _small(at: Shape) -> Shape:
    return Shape(min(at.L, SMALL), at.H, at.D)


def _dense(at: Shape) -> str:
    return f"dense map {4 * at.H * at.L**2 / 1e9:.1f} GB"
