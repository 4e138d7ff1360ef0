"""Bounded fills: whether scores that were filled to hide keys are bounded afterwards, so that these get weight."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from headwise.calls import Plan
from headwise.dataflow import SOFTMAXES, MarkedOp, Run
from headwise.diagnosis.repair import Repair
from headwise.diagnosis.suspects import Suspect
from headwise.wording import percent

__all__ = ["bounded_fills", "masked_bounds"]

# what gives a large negative number a small one
BOUNDS = frozenset({
    "tanh", "tanh_", "hardtanh", "clamp", "clamp_", "clip", "clip_", "clamp_min", "softsign", "atan", "arctan",
    "sigmoid",
})  # fmt: skip
# a score below this one is hidden; a weight above that one is some
HIDDEN, CLEAR = -1e4, 1e-6


def bounded_fills(run: Run) -> list[Suspect]:
    """The operation that bounds scores which a fill has hidden, where the softmax gives their keys weight."""
    for entry in run.seen:
        before, after = (each[0].value if each else None for each in (entry.inputs, entry.outputs))
        if entry.last not in BOUNDS or before is None or after is None or before.shape != after.shape:
            continue
        hidden = before <= HIDDEN
        # a row that is hidden whole has nothing else to see
        hidden &= ~hidden.all(dim=-1, keepdim=True) if before.ndim else hidden
        if not bool(hidden.any()):
            continue
        leak = _weight_of(run, entry, hidden)
        if leak > CLEAR:
            stand_ins = {entry.site: _kept(entry.function)}
            return [Suspect("mask-bounded", entry.span, Repair(stand_ins), values={"leak": percent(leak)}, proved=True)]
    return []


def masked_bounds(plan: Plan, rerun: Callable[..., Run]) -> list[Suspect]:
    """The same where a mask that is given hides scores."""
    return bounded_fills(rerun(plan=plan))


def _weight_of(run: Run, entry: MarkedOp, hidden: Tensor) -> float:
    """The largest weight that a softmax gives to some entries of what an operation gives."""
    numbers, shape = set(entry.results), entry.outputs[0].shape
    for later in run.seen:
        if later.at <= entry.at or not numbers & later.taken or not later.outputs or later.outputs[0].shape != shape:
            continue
        numbers |= later.results
        if later.last in SOFTMAXES and later.value is not None:
            weights = later.value.exp() if later.last == "log_softmax" else later.value
            return float(weights.nan_to_num()[hidden].max())
    return 0.0


def _kept(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that leaves what is hidden as it is."""

    def right(scores: Tensor, *args: Any, **options: Any) -> Any:
        hidden = scores <= HIDDEN
        return torch.where(hidden, scores.clone(), function(scores, *args, **options))

    return right
