"""Masks and rules on a GPU: torch's block-sparse kernel beside torch's own call with a mask that is ready."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import headwise as hw
from benchmarks.device import Row, interleaved, row

HEADS, D = 12, 64
# samples and tokens: short, and long
SIZES = ((4, 512), (2, 8192))


def rows(backends: Sequence[str] = ("flex", "auto")) -> Iterator[Row]:
    """Each mask and rule by these backends, forward and with the backward pass."""
    for B, L in SIZES:
        for name, (given, theirs) in cases(B, L).items():
            q, k, v = (
                torch.randn(B, HEADS, L, D, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3)
            )
            for direction, ours in (("forward", forward), ("forward and backward", backward)):
                for backend in backends:
                    start = time.perf_counter()
                    ours(partial(hw.attention, backend=backend, **given), q, k, v)
                    torch.cuda.synchronize()
                    seconds = time.perf_counter() - start
                    pair = interleaved(
                        partial(ours, partial(hw.attention, backend=backend, **given), q, k, v),
                        partial(ours, theirs, q, k, v),
                    )
                    made = row(f"{backend}, {name}, {direction}", f"B={B} H={HEADS} L={L} D={D}", q.dtype, *pair)
                    if backend == "flex":
                        made["first call, s"] = round(seconds, 2)
                    else:
                        made["runs"] = hw.backends(q, k, v, **given).chosen
                    yield made


def cases(B: int, L: int) -> dict[str, tuple[dict[str, Any], Callable[..., Tensor]]]:
    """What headwise is given, and torch's call of the same, whose mask is made before."""
    ids = (torch.arange(L, device="cuda") * 8 // L).expand(B, L).contiguous()
    masks = {
        "window of L/8": hw.causal() & hw.window(before=L // 8),
        "8 documents": hw.documents(ids) & hw.causal(),
    }
    made: dict[str, tuple[dict[str, Any], Callable[..., Tensor]]] = {}
    for name, mask in masks.items():
        ready = mask.allowed(L, L, batch=B, heads=1).to("cuda")
        made[name] = {"mask": mask}, partial(F.scaled_dot_product_attention, attn_mask=ready)
    rules = {"mask": masks["window of L/8"], "softcap": 30.0}
    made["softcap, window of L/8"] = rules, partial(hw.attention, backend="reference", **rules)
    return made


def forward(attend: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
    """Outputs without a graph."""
    with torch.no_grad():
        return attend(*inputs)


def backward(attend: Callable[..., Tensor], *inputs: Tensor) -> tuple[Tensor, ...]:
    """Outputs, and their gradients."""
    out = attend(*inputs)
    return torch.autograd.grad(out, inputs, torch.ones_like(out))
