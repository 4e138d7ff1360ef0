"""Formulas: whether weights follow scores as a design says, by how they answer to scores that are multiplied."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from headwise.diagnosis.checks.sharing import key_axis
from headwise.diagnosis.following.contractions import is_constant
from headwise.diagnosis.observation import SHARES, Observation, softmaxes_of

__all__ = [
    "has_further_terms", "is_additive", "is_biased", "is_capped", "is_decayed", "is_definition", "is_mixed",
    "is_normalised_late", "is_relu", "is_scaled_otherwise", "is_shared_among_queries", "is_shared_relu",
    "is_sigmoid", "is_sunk", "is_unshared", "softmax_of",
]  # fmt: skip

# relative to the largest entry: as exact as the least exact type on the way from scores to weights
NEAR = {torch.float64: 1e-8, torch.float32: 2e-5}
NEAR_HALF = 2e-2
# a weight below this says nothing of its score
LEAST, LEAST_HALF = 1e-9, 1e-3
# where some entries are hidden, rows and columns are centred in turn until neither moves the other
ROUNDS = 200
DIVISIONS = frozenset({"/", "/=", "div", "div_", "true_divide"})


class Slopes(NamedTuple):
    """How log weights answer. slopes: by how much they follow the scores, (problems, queries, 1), alike for all rows of
    one head. moved: what is the same for all keys of a row. visible: which entries count.
    """

    slopes: Tensor
    moved: Tensor
    visible: Tensor


def _types(seen: Observation) -> set[torch.dtype]:
    return {each.dtype for entry in seen.attention.path for each in entry.operation.outputs}


def _near(seen: Observation) -> float:
    found = [NEAR.get(each, NEAR_HALF) for each in _types(seen) if each.is_floating_point]
    return max([*found, NEAR[torch.float64]])


def _least(seen: Observation) -> float:
    return LEAST_HALF if _near(seen) == NEAR_HALF else LEAST


def _close(seen: Observation, a: Tensor, b: Tensor, *, size: float = 0.0) -> bool:
    """Whether two tensors are equal up to rounding, relative to the largest entry or to a size."""
    if a.shape != b.shape or not a.numel():
        return False
    largest = max(size, float(b.abs().max()), 1e-3)
    return bool(((a - b).abs() <= _near(seen) * largest).all())


def _mean(x: Tensor, visible: Tensor, axis: int = -1) -> Tensor:
    count = visible.sum(dim=axis, keepdim=True).clamp(min=1)
    return torch.where(visible, x, 0.0).sum(dim=axis, keepdim=True) / count


def _centred(x: Tensor, visible: Tensor, axis: int = -1) -> Tensor:
    """The visible entries without the mean of their row; all others 0."""
    return torch.where(visible, x - _mean(x, visible, axis), 0.0)


def _slopes(a: Tensor, b: Tensor, heads: Tensor) -> Tensor:
    """By what number a is b, for each head, by least squares over its rows."""
    out = torch.zeros_like(heads, dtype=a.dtype)
    for head in torch.unique(heads):
        own = (heads == head).expand_as(a)
        squares = float((b * b)[own].sum())
        out = torch.where(heads == head, float((a * b)[own].sum()) / squares if squares else 0.0, out)
    return out


def _visible(seen: Observation) -> Tensor:
    """Entries that count: without hidden keys, and without rows all of whose keys a mask hides."""
    visible = torch.stack([each > _least(seen) for each in seen.weights]).all(dim=0)
    if seen.run.plan.mask:
        low, plain, high = seen.weights
        is_even = ((plain - plain[..., :1]).abs() < LEAST).all(dim=-1, keepdim=True)
        is_fixed = ((low - plain).abs() + (high - plain).abs() < LEAST).all(dim=-1, keepdim=True)
        visible = visible & ~(is_even & is_fixed)
    return visible


def _logs(seen: Observation) -> tuple[Tensor, ...]:
    return tuple(each.clamp(min=_least(seen)).log() for each in seen.weights)


def _is_even(seen: Observation, steps: tuple[Tensor, ...], visible: Tensor) -> bool:
    """Whether steps of the scores move numbers evenly, up to one number for each row."""
    low, plain, high = steps
    bend = _centred(high - 2 * plain + low, visible)
    return _close(seen, bend, torch.zeros_like(bend), size=float(torch.where(visible, high - low, 0.0).abs().max()))


def softmax_of(seen: Observation) -> Slopes | None:
    """How weights follow scores by a softmax: of scores times a number for each head, to which anything may be added;
    None: they are no such.
    """
    visible = _visible(seen)
    if not bool(visible.any()) or any(bool((each < 0).any()) for each in seen.weights):
        return None
    logs = _logs(seen)
    if not _is_even(seen, logs, visible):
        return None
    step = (logs[-1] - logs[0]) / (SHARES[-1] - SHARES[0])
    slopes = _slopes(_centred(step, visible), _centred(seen.scores, visible), seen.heads)
    left = step - slopes * seen.scores
    if not _close(seen, _centred(left, visible), torch.zeros_like(left), size=float(step.abs().max())):
        return None
    return Slopes(slopes, _mean(left, visible), visible) if _answers(seen, slopes, visible) else None


def _answers(seen: Observation, slopes: Tensor, visible: Tensor) -> bool:
    """Whether larger scores make larger weights: in each head, or none yet, where a factor is 0 that grows."""
    if seen.scale is not None and any(each.value == 0 for each in seen.scale.factors):
        return True
    own = slopes[visible.sum(dim=-1, keepdim=True) > 1]
    return own.numel() > 0 and bool((own > LEAST).all())


def _is_normalised(seen: Observation) -> bool:
    known = _visible(seen).any(dim=-1)
    sums = seen.plain.sum(dim=-1)[known]
    return _close(seen, sums, torch.ones_like(sums))


def _is_plain(seen: Observation) -> Slopes | None:
    """How weights that are softmax(c · scores), with nothing added but what hides keys, follow scores; None: not so."""
    found = softmax_of(seen) if _is_normalised(seen) else None
    if found is None:
        return None
    known = found.visible.any(dim=-1)
    logits = (seen.scores * found.slopes).masked_fill(~found.visible, float("-inf"))
    return found if _close(seen, logits.softmax(dim=-1)[known], seen.plain[known]) else None


def is_definition(seen: Observation) -> bool:
    found = _is_plain(seen)
    if found is None or seen.scale is None or seen.attention.scores is None:
        return False
    return _close(seen, found.slopes, torch.full_like(found.slopes, _wanted(seen)))


def _wanted(seen: Observation) -> float:
    """1/√(head width) over what queries and keys were multiplied by before they met."""
    if seen.scale is None:
        return 1.0
    path = [*seen.attention.path, seen.attention.context]
    before = [each.value for each in seen.scale.factors if all(each.entry is not one for one in path)]
    return 1 / (math.sqrt(seen.scale.width) * math.prod(before))


def is_scaled_otherwise(seen: Observation) -> bool:
    return seen.attention.scores is not None and _is_plain(seen) is not None


def is_additive(seen: Observation) -> bool:
    """Whether scores are what learned weights make of the sum of a query and a key."""
    return seen.attention.scores is None and _is_plain(seen) is not None


def is_biased(seen: Observation) -> bool:
    """Whether what is added to the scores is the same for other inputs."""
    found = softmax_of(seen) if _is_normalised(seen) else None
    if found is None or seen.other is None or seen.other[0].shape != seen.scores.shape:
        return False
    scores, weights = seen.other
    visible = found.visible & (weights > _least(seen))
    pairs = ((seen.plain, seen.scores), (weights, scores))
    rest = [a.clamp(min=_least(seen)).log() - found.slopes * b for a, b in pairs]
    left = _centred(rest[0] - rest[1], visible)
    return _close(seen, left, torch.zeros_like(left), size=float(rest[0].abs().max()))


def is_sunk(seen: Observation) -> bool:
    """Whether what the weights lack of 1 went to a logit that does not follow the scores."""
    found = softmax_of(seen)
    low, _, high = (1 - each.sum(dim=-1, keepdim=True) for each in seen.weights)
    if found is None or bool((low <= LEAST).any()) or bool((high <= LEAST).any()):
        return False
    moved = (high.log() - low.log()) / (SHARES[-1] - SHARES[0])
    known = found.visible.any(dim=-1)
    return _close(seen, moved[known], found.moved[known])


def is_capped(seen: Observation) -> bool:
    """Whether logits are c · tanh(scores · s), by the two numbers that tanh was called with and gave."""
    bends = [each for each in seen.attention.path if each.last in ("tanh", "tanh_")]
    made = seen.attention.scores
    inner = bends[0].operation.inputs[0].value if len(bends) == 1 else None
    value = None if made is None else made.operation.outputs[0].value
    softmaxes = softmaxes_of(seen.attention)
    if inner is None or value is None or inner.numel() != value.numel() or len(softmaxes) != 1:
        return False
    a, b = (each.detach().double().flatten() for each in (value, inner))
    share = float((a * b).sum() / (a * a).sum())
    bent, visible = (seen.scores * share).tanh(), _visible(seen)
    logs = seen.plain.clamp(min=_least(seen)).log()
    slopes = _slopes(_centred(logs, visible), _centred(bent, visible), seen.heads)
    left = _centred(logs - slopes * bent, visible)
    is_tanh = _close(seen, b, a * share) and _close(seen, left, torch.zeros_like(left), size=float(logs.abs().max()))
    return is_tanh and _is_normalised(seen) and bool((slopes[visible.any(dim=-1, keepdim=True)] > 0).all())


def has_further_terms(seen: Observation) -> bool:
    """Whether scores are added to others that follow the inputs, as of distances, before a softmax."""
    return _is_normalised(seen) and softmax_of(seen) is not None


def is_normalised_late(seen: Observation) -> bool:
    """Whether the weighted sum is divided by what the weights of its query sum to."""
    if softmax_of(seen) is None:
        return False
    sums = seen.plain.sum(dim=-1).flatten()
    for entry in seen.run.seen:
        if entry.at > seen.attention.context.at and entry.operation.name in DIVISIONS:
            values = [each.value for each in entry.operation.inputs[1:] if each.value is not None]
            if any(each.numel() == sums.numel() and _close(seen, each.detach().double().flatten(), sums)
                   for each in values):  # fmt: skip
                return True
    return False


def is_shared_among_queries(seen: Observation) -> bool:
    """Whether each key shares itself out among the queries, and a query weighs its shares anew or as they are."""
    visible, softmaxes = _visible(seen), softmaxes_of(seen.attention)
    if not bool(visible.any()) or len(softmaxes) != 1 or bool((seen.plain < 0).any()):
        return False
    made, value = softmaxes[0].made[0], softmaxes[0].operation.outputs[0].value
    if made is None or made.kind != "pair" or value is None:
        return False
    is_among = any(
        is_constant(made.arrays[seen.attention.keys], axis) and _sums_to_one(value, axis) for axis in range(value.ndim)
    )
    low, _, high = _logs(seen)
    scores = _centred_both(seen.scores, visible)
    step = _centred_both((high - low) / (SHARES[-1] - SHARES[0]), visible)
    slopes = _slopes(step, scores, seen.heads)
    # a small number may be added to the shares
    is_near = bool(((step - slopes * scores).abs() <= 1e-4 * max(1.0, float(step.abs().max()))).all())
    return is_among and bool((slopes > 0).all()) and is_near


def _sums_to_one(value: Tensor, axis: int) -> bool:
    sums = value.detach().double().sum(dim=axis)
    known = sums[~sums.isnan()]
    return known.numel() > 0 and bool(((known - 1).abs() < 1e-4).all())


def _centred_both(x: Tensor, visible: Tensor) -> Tensor:
    """The visible entries without what is the same for a whole row or a whole column."""
    for _ in range(ROUNDS):
        x = _centred(_centred(x, visible), visible, -2)
    return x


def is_mixed(seen: Observation) -> bool:
    """Whether weights are sums of softmaxes over keys, of logits that follow the scores evenly."""
    softmaxes = softmaxes_of(seen.attention)
    if not softmaxes or seen.doubled is None or not _close(seen, seen.doubled, 2 * seen.plain):
        return False
    if len(seen.softmaxes) != len(softmaxes):
        return False
    for entry, values in zip(softmaxes, seen.softmaxes, strict=True):
        marks = entry.made[0]
        axis = key_axis(marks, seen.attention) if marks is not None and marks.kind == "pair" else None
        if axis is None or any(not each.numel() for each in values):
            return False
        low, plain, high = (each.movedim(axis, -1) for each in values)
        visible = (low > _least(seen)) & (plain > _least(seen)) & (high > _least(seen))
        logs = (low.clamp(min=LEAST).log(), plain.clamp(min=LEAST).log(), high.clamp(min=LEAST).log())
        sums = plain.sum(dim=-1)
        if not _close(seen, sums, torch.ones_like(sums)) or not _is_even(seen, logs, visible):
            return False
        if _close(seen, low, high):
            # nothing of it follows the scores
            return False
    return True


def is_sigmoid(seen: Observation) -> bool:
    visible = _visible(seen) & torch.stack([each < 1 - LEAST for each in seen.weights]).all(dim=0)
    if not bool(visible.any()):
        return False
    low, plain, high = (torch.where(visible, each, 0.5).logit() for each in seen.weights)
    step, scores = (high - low) / (SHARES[-1] - SHARES[0]), torch.where(visible, seen.scores, 0.0)
    slopes = _slopes(step, scores, seen.heads)
    even = _close(seen, high - plain, plain - low)
    return even and bool((slopes > 0).any()) and _close(seen, step, slopes * scores)


def is_relu(seen: Observation, *, power: int = 1) -> bool:
    return _is_times(seen, torch.where(_hidden(seen), 0.0, seen.scores).clamp(min=0) ** power)


def _hidden(seen: Observation) -> Tensor:
    """Entries to which a mask gives no weight; without a mask none."""
    is_nothing = torch.stack([each.abs() <= LEAST for each in seen.weights]).all(dim=0)
    return is_nothing & bool(seen.run.plan.mask)


def _is_times(seen: Observation, wanted: Tensor) -> bool:
    squares = float((wanted * wanted).sum())
    factor = float((seen.plain * wanted).sum()) / squares if squares else 0.0
    return factor > 0 and _close(seen, seen.plain / factor, wanted)


def is_shared_relu(seen: Observation) -> bool:
    wanted = torch.where(_hidden(seen), 0.0, seen.scores).clamp(min=0)
    sums = wanted.sum(dim=-1, keepdim=True)
    known = sums.squeeze(-1) > LEAST
    # a small number may be added to the sum
    near = (seen.plain - wanted / sums.clamp(min=LEAST))[known]
    return bool(known.any()) and bool((near.abs() <= 1e-3).all())


def is_unshared(seen: Observation) -> bool:
    return _is_times(seen, torch.where(_hidden(seen), 0.0, seen.scores))


def is_decayed(seen: Observation) -> bool:
    """Whether weights are scores times numbers that are the same for other inputs, and none below 0."""
    if seen.other is None or seen.other[0].shape != seen.scores.shape:
        return False
    pairs = ((seen.plain, seen.scores), (seen.other[1], seen.other[0]))
    if any(bool(((b.abs() <= LEAST) & (a.abs() > LEAST)).any()) for a, b in pairs):
        return False
    known = (seen.scores.abs() > LEAST) & (seen.other[0].abs() > LEAST)
    first, second = (torch.where(known, a, 0.0) / torch.where(known, b, 1.0) for a, b in pairs)
    return bool((first >= -LEAST).all()) and bool((first > 0).any()) and _close(seen, first, second)
