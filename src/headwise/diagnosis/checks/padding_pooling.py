"""Padding pooling: whether one vector for each sample is made of its own tokens alone, not of its padding too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from headwise.calls import Plan
from headwise.dataflow import Run, allowed_by, attentions
from headwise.diagnosis.distance import distance
from headwise.diagnosis.suspects import Suspect
from headwise.source import Span

__all__ = ["pooled_padding"]

# what joins the tokens of a sample
POOLS = frozenset({
    "sum", "mean", "max", "amax", "logsumexp", "avg_pool1d", "max_pool1d", "adaptive_avg_pool1d",
    "adaptive_max_pool1d",
})  # fmt: skip
NEAR = 1e-9


def pooled_padding(plan: Plan, rerun: Callable[..., Run]) -> list[Suspect]:
    """The first sum, mean or maximum over tokens that takes in those which the mask hides from every query.

    Proved by a run in which the hidden tokens alone are others: just these differ in what is pooled, and the output
    differs, which has no tokens left.
    """
    declared = plan.call.get("_mask")
    if not isinstance(declared, Mapping):
        return []
    axes = [str(axis) for axis in declared["shape"]]
    if plan.setting != "self" or axes.count("L") != (0 if declared["means"] == "lengths" else 1):
        return []
    run: Run = rerun(plan=plan)
    samples, length = run.sizes.get("B", 0), run.sizes.get("L", 0)
    name = next((each for each in run.known if run.named[each].shape[:2] == (samples, length)), "")
    if run.failure is not None or run.output is None or length in run.output.shape or not name or not attentions(run):
        return []
    allowed = allowed_by(run, samples, length, length)
    hidden = None if allowed is None else ~allowed[:, 0]
    if hidden is None or not bool(hidden.any()) or bool(hidden.all(dim=-1).any()):
        return []

    def change(_: Any, options: dict[str, Any]) -> None:
        tokens = options.get(name)
        if isinstance(tokens, Tensor):
            options[name] = _others(tokens, hidden)

    again: Run = rerun(plan=plan, more_change=change)
    if again.failure is not None or again.output is None or distance(run.output, again.output) <= NEAR:
        return []
    place = _pool(run, again, hidden)
    if place is None:
        return []
    error = f"{distance(run.output, again.output):.4g}"
    return [Suspect("padding-pooled", place, said={"how": "hidden"}, proved=True, evidence=error)]


def _others(tokens: Tensor, hidden: Tensor) -> Tensor:
    """Other tokens at hidden places: of numbers, the next among those that are there."""
    if tokens.is_floating_point():
        return torch.where(hidden.view(*hidden.shape, *[1] * (tokens.ndim - 2)), 1.0 - tokens, tokens)
    following = torch.roll(tokens, 1, dims=-1)
    return torch.where(hidden, following, tokens)


def _pool(run: Run, again: Run, hidden: Tensor) -> Span | None:
    """The first operation that joins tokens of which just the hidden ones differ in two runs."""
    for first, second in zip(run.seen, again.seen, strict=False):
        if first.span != second.span or first.name != second.name:
            return None
        if first.last not in POOLS or not first.inputs or not first.outputs:
            continue
        before, after = first.inputs[0].value, second.inputs[0].value
        if before is None or after is None or before.ndim != 3 or before.shape != after.shape:
            continue
        axes = [axis for axis, size in enumerate(before.shape) if size == hidden.shape[1]]
        results = [entry.outputs[0].value for entry in (first, second)]
        if len(axes) != 1 or hidden.shape[1] in first.outputs[0].shape or distance(*results) <= NEAR:
            continue
        by_token = (before != after).movedim(axes[0], -1)
        samples = [axis for axis, size in enumerate(by_token.shape[:-1]) if size == hidden.shape[0]]
        if len(samples) != 1:
            continue
        differs = by_token.any(dim=1 - samples[0])
        if bool(differs.any()) and not bool((differs & ~hidden).any()):
            return first.span
    return None
