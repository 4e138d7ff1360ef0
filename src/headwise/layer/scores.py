"""Specs of how a query is scored against a key: DotProduct and Additive."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from headwise.errors import ArgumentError

SINKS = (None, "learned", "zero")


@dataclass(frozen=True)
class DotProduct:
    """Score by q·k, scaled, perhaps capped, perhaps with a sink.

    scale: what q·k is multiplied by, None: 1/sqrt(head_dim). softcap: scores become c·tanh(score/c), None: no cap.
    sink: None; "learned": one logit a head that takes weight and gives nothing (gpt-oss); "zero": the same, fixed at
    0 (softmax with one added to its sum). Vaswani et al. 2017, arXiv:1706.03762, sec. 3.2.1; softcap:
    arXiv:2408.00118, sec. 2.

    >>> import headwise as hw
    >>> hw.MultiHeadAttention(8, 2, score=hw.DotProduct(softcap=30.0, sink="learned")).sink
    Parameter containing:
    tensor([0., 0.], requires_grad=True)
    """

    scale: float | None = None
    softcap: float | None = None
    sink: Literal["learned", "zero"] | None = None

    def __post_init__(self) -> None:
        if self.sink not in SINKS:
            raise ArgumentError(f'sink must be None, "learned" or "zero"; got {self.sink!r}')
        if self.scale is not None and not math.isfinite(self.scale):
            raise ArgumentError(f"scale must be a finite number, or None for 1/sqrt(head_dim); got {self.scale}")
        if self.softcap is not None and not self.softcap > 0:
            raise ArgumentError(f"softcap must be greater than 0, or None for no cap; got {self.softcap}")


@dataclass(frozen=True)
class Additive:
    """Score by wᵀ tanh(q + k), with queries and keys projected to hidden_dim features a head.

    Bahdanau et al. 2015, arXiv:1409.0473, appendix A.1.2.

    >>> import headwise as hw
    >>> hw.MultiHeadAttention(8, 2, score=hw.Additive(5)).score_weight.shape
    torch.Size([2, 5])
    """

    hidden_dim: int

    def __post_init__(self) -> None:
        if self.hidden_dim < 1:
            raise ArgumentError(f"Additive(hidden_dim) counts features, so it must be 1 or more; got {self.hidden_dim}")
