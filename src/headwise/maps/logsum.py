"""LogSum: the log-sum-exp of a map's rows in two parts, exact where one number could not hold both."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class LogSum(NamedTuple):
    """What the weights exp(score - base - log) of a row are normalised by, all (B, Hq, Lq).

    base: the largest score of the row's keys, or near it. log: natural log of the sum of exp(score - base), the sink's
    too. Apart, because a bias of -1e9 leaves float32 no room for the log of a count. lse: both in one number. On a row
    without keys log is 0, and base and lse are the sink's logit, or -inf. Where an lse was given, it is the base.
    """

    base: Tensor
    log: Tensor
    lse: Tensor

    def of(self, *taken: slice | int | Tensor) -> LogSum:
        """That of some rows, by an index of samples, query heads and rows."""
        return LogSum(*(t[taken] for t in self))

    def beside(self, scores: Tensor) -> Tensor:
        """scores (..., Lk) less both parts (...): the logarithms of weights."""
        return scores - finite(self.base)[..., None] - self.log[..., None]


def finite(base: Tensor) -> Tensor:
    """A base with 0 in the place of -inf: what is subtracted from the scores of a row that has no open key."""
    return base.masked_fill(base.isneginf(), 0.0)


def of_logits(logits: Tensor, sink: Tensor | None) -> LogSum:
    """That of masked scores (B, Hq, Lq, Lk) and a sink (Hq,), differentiable; the base is a number, log has it all."""
    if sink is not None:
        column = sink.to(logits.dtype)[None, :, None, None].expand(*logits.shape[:-1], 1)
        logits = torch.cat([logits, column], dim=-1)
    if logits.shape[-1] == 0:
        logits = logits.new_full((*logits.shape[:-1], 1), float("-inf"))
    base = logits.detach().amax(-1)
    log = torch.logsumexp(logits - finite(base)[..., None], dim=-1)
    log = log.masked_fill(log.isneginf(), 0.0)
    return LogSum(base, log, base + log)
