"""Norms of queries and keys over the features of a head: "rms", "layer" or "l2"."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headwise.errors import ArgumentError

KINDS = ("rms", "layer", "l2")


class L2Norm(nn.Module):
    """Each head of a query or key divided by its Euclidean length, (..., D) -> (..., D); zeros stay zeros.

    Henry et al. 2020, arXiv:2010.04245, eq. 2.

    >>> L2Norm()(torch.tensor([3.0, 4.0]))
    tensor([0.6000, 0.8000])
    """

    def forward(self, x: Tensor) -> Tensor:
        """x (..., D) -> (..., D)."""
        return F.normalize(x, dim=-1)


class RMSNorm(nn.RMSNorm):
    """Each head of a query or key divided by its root mean square, times a learned weight, (..., D) -> (..., D).

    Computed in the dtype of the weight: under autocast, which leaves this norm alone, that is float32.
    Zhang and Sennrich 2019, arXiv:1910.07467, eq. 4.

    >>> RMSNorm(2)(torch.tensor([3.0, -3.0]))
    tensor([ 1., -1.], grad_fn=<MulBackward0>)
    """

    def forward(self, x: Tensor) -> Tensor:
        """x (..., D) -> (..., D)."""
        return super().forward(x.to(self.weight.dtype))


def head_norm(
    kind: str | None, D: int, *, device: torch.device | str | None, dtype: torch.dtype | None
) -> nn.Module | None:
    """The module for qk_norm=kind over heads of width D; None: no norm."""
    if kind is None:
        return None
    if kind == "rms":
        return RMSNorm(D, device=device, dtype=dtype)
    if kind == "layer":
        return nn.LayerNorm(D, device=device, dtype=dtype)
    if kind == "l2":
        return L2Norm()
    raise ArgumentError(f"qk_norm must be None, {', '.join(map(repr, KINDS))}; got {kind!r}")
