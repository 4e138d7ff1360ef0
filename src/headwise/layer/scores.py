"""Specs of how a query is scored against a key: DotProduct and Additive."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from headwise.errors import ArgumentError
from headwise.shapes import check_count, check_number

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
        if self.scale is not None:
            check_number("scale", self.scale)
            if self.scale == 0 or not math.isfinite(self.scale):
                raise ArgumentError(
                    "scale must be finite and not 0, which would give every key the same weight, or None for "
                    f"1/sqrt(head_dim); got scale={self.scale}"
                )
        if self.softcap is not None:
            check_number("softcap", self.softcap)
            if not 0 < self.softcap < math.inf:
                raise ArgumentError(
                    f"softcap must be greater than 0 and finite, or None for no cap; got {self.softcap}"
                )


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
        check_count("hidden_dim", self.hidden_dim)


def additive_width(score: Additive, head_dim: int | None, position: object) -> int:
    """The head_dim of a layer that scores by addition; ArgumentError where head_dim or position contradicts it."""
    if position is not None:
        raise ArgumentError(f"position={position} acts on dot products, but score={score}: leave position out")
    if head_dim not in (None, score.hidden_dim):
        raise ArgumentError(
            f"{score} sets the width of a head, but head_dim={head_dim} differs from it: leave head_dim out"
        )
    return score.hidden_dim
