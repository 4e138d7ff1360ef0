"""Local heads: which heads of a layer are computed here, and how its inputs and parameters are read for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from headwise.masks import Mask


@dataclass(frozen=True)
class Share:
    """All heads of a layer, read as they are: what a layer has that is not split over ranks.

    Hq and Hk count the query heads and the key/value heads that are computed here. A layer under tensor parallelism
    has a share of another class, `headwise.distributed.tensor_parallel.HeadShare`, which overrides each method.
    """

    Hq: int
    Hk: int

    @property
    def first_head(self) -> int:
        """Which of the layer's query heads the first one computed here is."""
        return 0

    def enter(self, t: Tensor, layer: nn.Module) -> Tensor:
        """An input of the layer, (B, L, E), as the heads computed here read it."""
        return t

    def leave(self, t: Tensor, layer: nn.Module) -> Tensor:
        """The output of the layer, (B, Lq, out), from what the heads computed here add to it."""
        return t

    def call(self, name: str, module: nn.Module, *inputs: Any) -> Tensor:
        """What a sub-module of the layer, by its name there, makes of the inputs for the heads computed here."""
        out: Tensor = module(*inputs)
        return out

    def parameter(self, name: str, t: Tensor) -> Tensor:
        """A parameter of the layer itself, (Hq, ...), as far as it belongs to the heads computed here."""
        return t

    def mask(self, mask: Mask | None) -> Mask | None:
        """A mask of all heads, for those computed here."""
        return mask

    def bias(self, bias: Tensor | None) -> Tensor | None:
        """Scores to add of all heads, (Lq, Lk) or (B|1, Hq|1, Lq|1, Lk|1), for those computed here."""
        return bias

    def generator(self, device: torch.device) -> torch.Generator | None:
        """Where dropout of the heads computed here draws from; None: torch's global generator."""
        return None

    def seed(self, device: torch.device) -> Tensor | None:
        """The seed of a spread call's dropout, the same wherever heads of the layer are computed; None: its own."""
        return None

    def attend(self, run: Callable[..., Tensor], *tensors: Tensor, **rules: Any) -> Tensor:
        """The outputs of the heads computed here, by a function of attention."""
        return run(*tensors, **rules)
