"""Nested tensors, which nn.TransformerEncoder passes to its layers in eval, as padded ones and back."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Padded"]


@dataclass(frozen=True)
class Padded:
    """Sequences of several lengths, padded with zeros: rows (B, L, E), and padding (B, L) bool, True = padding."""

    rows: Tensor
    padding: Tensor
    lengths: tuple[int, ...]

    @staticmethod
    def of(nested: Tensor) -> Padded:
        """The sequences of a nested tensor of the strided layout, (B, *, E)."""
        lengths = tuple(row.shape[0] for row in nested.unbind())
        rows = nested.to_padded_tensor(0.0)
        ends = torch.tensor(lengths, device=nested.device)[:, None]
        return Padded(rows, torch.arange(rows.shape[1], device=nested.device) >= ends, lengths)

    def unpadded(self, out: Tensor) -> Tensor:
        """What was computed of the rows, (B, L, E), as a nested tensor."""
        return torch.nested.as_nested_tensor([row[:n] for row, n in zip(out, self.lengths, strict=True)])

    def of_queries(self, weights: Tensor) -> Tensor:
        """Weights (B, L, L) or (B, H, L, L) with rows of zeros where the query is padding."""
        empty = self.padding[:, :, None] if weights.ndim == 3 else self.padding[:, None, :, None]
        return weights.masked_fill(empty, 0.0)
