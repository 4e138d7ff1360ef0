"""Subsampled lengths: whether lengths that count what came are held against the fewer tokens made of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from headwise.calls import Plan
from headwise.dataflow import NOTHING, MarkedOp, Run, attentions, find_pattern
from headwise.diagnosis.suspects import Suspect

__all__ = ["unscaled_lengths"]

# how many frames there are, of which half are padding
FRAMES = 64
COMPARED = frozenset({"<", "<=", ">", ">=", "lt", "le", "gt", "ge"})


def unscaled_lengths(plan: Plan, rerun: Callable[..., Run]) -> list[Suspect]:
    """The comparison of places with lengths that hides nothing, where tokens are fewer than the frames that came.

    In a run half of the frames are padding, as the lengths say; no key of the first attention loses its weight, as half
    of them must. Proved by a second run, whose lengths are as many times shorter as tokens are fewer: there some do.
    """
    declared = plan.call.get("_mask")
    if not isinstance(declared, dict) or declared["means"] != "lengths" or plan.setting != "self":
        return []
    name = str(declared["argument"])

    def with_lengths(length: int) -> Run:
        def change(_: Any, options: dict[str, Any]) -> None:
            options[name] = torch.full_like(options[name], length)

        again: Run = rerun(plan=plan, sizes={**plan.sizes(0), "L": FRAMES}, more_change=change)
        return again

    run = with_lengths(FRAMES // 2)
    weights = _first_weights(run)
    if weights is None or not 1 < weights.shape[-1] <= FRAMES // 2 or _hides(weights):
        return []
    compared = next((entry for entry in run.seen if _compares(entry, run.named.get(name))), None)
    # the same part of the tokens is real as of the frames
    scaled = _first_weights(with_lengths(weights.shape[-1] // 2))
    if compared is None or scaled is None or not _hides(scaled):
        return []
    return [Suspect("lengths-not-scaled", compared.span, said={"name": name}, proved=True)]


def _first_weights(run: Run) -> Tensor | None:
    """The weights of the first attention, (..., queries, keys); None: there are none."""
    first = next(iter(attentions(run)), None)
    if run.failure is not None or first is None:
        return None
    sight = None if first.softmax is not None else find_pattern(first)
    return first.softmax.outputs[0].value if first.softmax is not None else None if sight is None else sight.weights


def _hides(weights: Tensor) -> bool:
    """Whether the last key has no weight at all."""
    return not bool((weights[..., -1].abs() > NOTHING).any())


def _compares(entry: MarkedOp, lengths: Tensor | None) -> bool:
    """Whether an operation compares something with the lengths."""
    if entry.name not in COMPARED or lengths is None:
        return False
    flat = lengths.flatten()
    return any(tensor.numel() == flat.numel() and torch.equal(tensor.flatten(), flat) for tensor in entry.tensors)
