"""The rate of torch's own matrix products, beside which a kernel's can be seen."""

from __future__ import annotations

import statistics
import time

import torch

SIDE, ROUNDS = 2048, 3
# a product that would take longer is measured by a smaller one: without instructions for a dtype it may take a minute
LONGEST_SECONDS = 1.0


def matmul_rate(dtype: torch.dtype, *, side: int = SIDE) -> float:
    """Floating point operations a second of a square product: 2·side³ over the median of a few times."""
    least = min(side, 256)
    seconds = _seconds(dtype, least)
    while least < side and seconds * 8 < LONGEST_SECONDS:
        least = min(2 * least, side)
        seconds = _seconds(dtype, least)
    return 2 * least**3 / seconds


def _seconds(dtype: torch.dtype, side: int) -> float:
    a, b = torch.randn(side, side).to(dtype), torch.randn(side, side).to(dtype)
    out = a @ b
    seconds = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        torch.matmul(a, b, out=out)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def attention_flops(*, pairs: float, heads: int, D: int, has_backward: bool) -> float:
    """What the products of attention take: 4·D for each pair of a query and a key it may see, in each head.

    Two products forward, q·k and weights·v; five backward, since q·k is computed again: 14·D in all.
    """
    return (14.0 if has_backward else 4.0) * D * pairs * heads
