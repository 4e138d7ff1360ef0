"""Additive scores of a strip, wᵀ tanh(q + k), and their gradients, a few rows at a time.

Bahdanau et al. 2015, arXiv:1409.0473, appendix A.1.2.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

# the most sums q + k held at once: what a core keeps near
SUMS = 1 << 17


class AdditiveGradients(NamedTuple):
    """The gradients of q (N, R, D), k (N, C, D) and of the weight by row (N, R, D)."""

    q: Tensor
    k: Tensor
    weight: Tensor


def scores(q: Tensor, k: Tensor, weight: Tensor, *, out: Tensor) -> None:
    """Write wᵀ tanh(q + k) into out (N, R, C); q and weight (N, R, D), k (N, C, D)."""
    sums = q.new_empty(_height(k), *k.shape[1:])
    for n, rows in _chunks(q, k):
        bent = _bent(q[n, rows], k[n], sums)
        # the same weight serves all rows of a head, but a strip may hold several heads
        torch.bmm(bent, weight[n, rows, :, None], out=out[n, rows, :, None])
        if q.dtype is torch.float32:
            out[n, rows].mul_(2.0).sub_(weight[n, rows].sum(-1, keepdim=True))


def gradients(q: Tensor, k: Tensor, weight: Tensor, slopes: Tensor) -> AdditiveGradients:
    """The gradients, given those of the scores (N, R, C)."""
    found = AdditiveGradients(torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(weight))
    sums = q.new_empty(_height(k), *k.shape[1:])
    for n, rows in _chunks(q, k):
        bent = _bent(q[n, rows], k[n], sums)
        of_scores = slopes[n, rows]
        by_weight = torch.bmm(of_scores[:, None], bent)[:, 0]
        if q.dtype is torch.float32:
            # σ' = σ(1 - σ), and tanh(x) = 2σ(2x) - 1
            found.weight[n, rows] = 2.0 * by_weight - of_scores.sum(-1, keepdim=True)
            bent.sub_(bent.square()).mul_(4.0)
        else:
            found.weight[n, rows] = by_weight
            bent.square_().neg_().add_(1.0)
        bent.mul_(of_scores[..., None])
        found.q[n, rows] = bent.sum(1) * weight[n, rows]
        found.k[n] += (bent * weight[n, rows, None]).sum(0)
    return found


def _bent(q: Tensor, k: Tensor, room: Tensor) -> Tensor:
    """tanh(q + k), or in float32 σ(2(q + k)), which torch 2.13 computes ten times as fast: (rows, C, D)."""
    bent = torch.add(q[:, None], k[None], out=room[: q.shape[0]])
    return bent.mul_(2.0).sigmoid_() if q.dtype is torch.float32 else bent.tanh_()


def _chunks(q: Tensor, k: Tensor) -> Iterator[tuple[int, slice]]:
    height = _height(k)
    for n in range(q.shape[0]):
        for start in range(0, q.shape[1], height):
            yield n, slice(start, min(start + height, q.shape[1]))


def _height(k: Tensor) -> int:
    """How many rows of sums are held at once."""
    return max(1, SUMS // max(1, k.shape[1] * k.shape[2]))
