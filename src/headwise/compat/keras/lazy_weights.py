"""Lazy weights: device and dtype of weights that Keras' layers create at their first call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from headwise.errors import ArgumentError

__all__ = ["Later"]


@dataclass(frozen=True)
class Later:
    """The device and the dtype of weights to be made; None: those of the first query.

    >>> Later().moved(lambda t: t.half()).met(torch.zeros(2))
    Later(device=device(type='cpu'), dtype=torch.float16)
    """

    device: torch.device | str | None = None
    dtype: torch.dtype | None = None

    def met(self, query: Tensor) -> Later:
        """Device and dtype, those not declared yet taken from a query."""
        if self.dtype is None and not query.is_floating_point():
            raise ArgumentError(
                f"weights are made in the dtype of the first query, which must be floating, but {query.dtype} came: "
                "cast it"
            )
        device = query.device if self.device is None else self.device
        return Later(device, query.dtype if self.dtype is None else self.dtype)

    def of(self, weight: Tensor) -> Later:
        """The dtype, taken from the weights to be loaded where none is declared."""
        return Later(self.device, weight.dtype if self.dtype is None else self.dtype)

    def moved(self, fn: Callable[[Tensor], Tensor]) -> Later:
        """What `.half()`, `.to("cuda")` and their like say of weights that are not there, fn being what they apply."""
        before = torch.device("cpu" if self.device is None else self.device)
        narrow, wide = (fn(torch.empty(0, device=before, dtype=dtype)) for dtype in (torch.float32, torch.float64))
        return Later(
            self.device if narrow.device == before else narrow.device,
            narrow.dtype if narrow.dtype is wide.dtype else self.dtype,
        )
