"""Sensitivity: how the weights of an attention answer to scores that are multiplied, and how exactly that is known."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from headwise.diagnosis.observation import SHARES, Observation

__all__ = [
    "LEAST", "Slopes", "centred", "centred_both", "is_close", "is_normalised", "least_of", "logs_of", "moves_evenly",
    "slopes_of", "softmax_of", "sums_to_one", "visible_in",
]  # fmt: skip

# relative to the largest entry: as exact as the least exact type on the way from scores to weights
NEAR = {torch.float64: 1e-8, torch.float32: 2e-5}
NEAR_HALF = 2e-2
# a weight below this says nothing of its score
LEAST, LEAST_HALF = 1e-9, 1e-3
# where some entries are hidden, rows and columns are centred in turn until neither moves the other
ROUNDS = 200


class Slopes(NamedTuple):
    """How log weights answer. slopes: by how much they follow the scores, (problems, queries, 1), alike for all rows of
    one head. moved: what is the same for all keys of a row. visible: which entries count.
    """

    slopes: Tensor
    moved: Tensor
    visible: Tensor


def _types(observation: Observation) -> set[torch.dtype]:
    return {tensor.dtype for entry in observation.attention.path for tensor in entry.outputs}


def _near(observation: Observation) -> float:
    tolerances = [NEAR.get(each, NEAR_HALF) for each in _types(observation) if each.is_floating_point]
    return max([*tolerances, NEAR[torch.float64]])


def least_of(observation: Observation) -> float:
    return LEAST_HALF if _near(observation) == NEAR_HALF else LEAST


def is_close(observation: Observation, a: Tensor, b: Tensor, *, size: float = 0.0) -> bool:
    """Whether two tensors are equal up to rounding, relative to the largest entry or to a size."""
    if a.shape != b.shape or not a.numel():
        return False
    largest = max(size, float(b.abs().max()), 1e-3)
    return bool(((a - b).abs() <= _near(observation) * largest).all())


def _mean(x: Tensor, visible: Tensor, axis: int = -1) -> Tensor:
    count = visible.sum(dim=axis, keepdim=True).clamp(min=1)
    return torch.where(visible, x, 0.0).sum(dim=axis, keepdim=True) / count


def centred(x: Tensor, visible: Tensor, axis: int = -1) -> Tensor:
    """The visible entries without the mean of their row; all others 0."""
    return torch.where(visible, x - _mean(x, visible, axis), 0.0)


def slopes_of(a: Tensor, b: Tensor, heads: Tensor) -> Tensor:
    """By what number a is b, for each head, by least squares over its rows."""
    out = torch.zeros_like(heads, dtype=a.dtype)
    for head in torch.unique(heads):
        is_own = (heads == head).expand_as(a)
        squares = float((b * b)[is_own].sum())
        out = torch.where(heads == head, float((a * b)[is_own].sum()) / squares if squares else 0.0, out)
    return out


def visible_in(observation: Observation) -> Tensor:
    """Entries that count: without hidden keys, and without rows all of whose keys a mask hides."""
    visible = torch.stack([weight > least_of(observation) for weight in observation.weights]).all(dim=0)
    if observation.run.plan.mask:
        hidden = observation.hidden_rows
        visible = visible & ~(_is_even_row(observation) if hidden is None else hidden)
    return visible


def _is_even_row(observation: Observation) -> Tensor:
    """Which rows have one weight for all that has any, whatever the scores are, (problems, queries, 1): what is hidden
    twice, or as all else is, has one lowest number.
    """
    low, plain, high = observation.weights
    most = plain.amax(dim=-1, keepdim=True)
    is_even = (((most - plain).abs() < LEAST) | (plain < LEAST)).all(dim=-1, keepdim=True)
    return is_even & ((low - plain).abs() + (high - plain).abs() < LEAST).all(dim=-1, keepdim=True)


def logs_of(observation: Observation) -> tuple[Tensor, ...]:
    return tuple(weight.clamp(min=least_of(observation)).log() for weight in observation.weights)


def _is_even(observation: Observation, steps: tuple[Tensor, ...], visible: Tensor) -> bool:
    """Whether steps of the scores move numbers evenly, up to one number for each row."""
    low, plain, high = steps
    bend = centred(high - 2 * plain + low, visible)
    return is_close(
        observation, bend, torch.zeros_like(bend), size=float(torch.where(visible, high - low, 0.0).abs().max())
    )


def softmax_of(observation: Observation) -> Slopes | None:
    """How weights follow scores by a softmax: of scores times a number for each head, to which anything may be added;
    None: they are no such.
    """
    visible = visible_in(observation)
    if not bool(visible.any()) or any(bool((weight < 0).any()) for weight in observation.weights):
        return None
    logs = logs_of(observation)
    if not _is_even(observation, logs, visible):
        return None
    step = (logs[-1] - logs[0]) / (SHARES[-1] - SHARES[0])
    slopes = slopes_of(centred(step, visible), centred(observation.scores, visible), observation.heads)
    left = step - slopes * observation.scores
    if not is_close(observation, centred(left, visible), torch.zeros_like(left), size=float(step.abs().max())):
        return None
    return Slopes(slopes, _mean(left, visible), visible) if _answers(observation, slopes, visible) else None


def _answers(observation: Observation, slopes: Tensor, visible: Tensor) -> bool:
    """Whether larger scores make larger weights: in each head, or none yet, where a tensor is 0 that grows."""
    zeros = (
        [] if observation.scale is None else [factor.entry for factor in observation.scale.factors if factor.value == 0]
    )
    if any(len(entry.tensors) > 1 for entry in zeros):
        return True
    used_slopes = slopes[visible.sum(dim=-1, keepdim=True) > 1]
    return used_slopes.numel() > 0 and bool((used_slopes > LEAST).all())


def is_normalised(observation: Observation) -> bool:
    is_known = visible_in(observation).any(dim=-1)
    sums = observation.plain.sum(dim=-1)[is_known]
    return is_close(observation, sums, torch.ones_like(sums))


def centred_both(x: Tensor, visible: Tensor) -> Tensor:
    """The visible entries without what is the same for a whole row or a whole column."""
    for _ in range(ROUNDS):
        x = centred(centred(x, visible), visible, -2)
    return x


def moves_evenly(observation: Observation, *steps: Tensor) -> bool:
    """Whether the logarithms of three weights in a row are as far from each other, up to one number for each row."""
    visible = torch.stack([step > least_of(observation) for step in steps]).all(dim=0)
    low, plain, high = (step.clamp(min=LEAST).log() for step in steps)
    return _is_even(observation, (low, plain, high), visible)


def sums_to_one(value: Tensor, axis: int) -> bool:
    sums = value.detach().double().sum(dim=axis)
    known_sums = sums[~sums.isnan()]
    return known_sums.numel() > 0 and bool(((known_sums - 1).abs() < 1e-4).all())
