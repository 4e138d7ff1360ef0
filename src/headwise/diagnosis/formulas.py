"""Formulas: whether weights follow from scores as a design of the table says."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from headwise.dataflow import is_constant
from headwise.diagnosis.checks.weight_sums import key_axis
from headwise.diagnosis.head_mixtures import follow_evenly, is_learned_after, is_one_softmax
from headwise.diagnosis.observation import SHARES, Observation, softmaxes_of
from headwise.diagnosis.relative_terms import is_shifted
from headwise.diagnosis.sensitivity import (
    LEAST,
    Slopes,
    centred,
    centred_both,
    is_close,
    is_normalised,
    least_of,
    logs_of,
    slopes_of,
    softmax_of,
    sums_to_one,
    visible_in,
)  # fmt: skip

__all__ = [
    "has_further_terms", "is_additive", "is_biased", "is_capped", "is_decayed", "is_definition",
    "is_normalised_late", "is_relu", "is_scaled_otherwise", "is_shared_among_queries", "is_shared_relu",
    "is_sharpened", "is_sigmoid", "is_sunk", "is_unshared",
]  # fmt: skip

DIVISIONS = frozenset({"/", "/=", "div", "div_", "true_divide"})


def _is_plain(seen: Observation) -> Slopes | None:
    """How weights that are softmax(c · scores), with nothing added but what hides keys, follow scores; None: not so."""
    found = softmax_of(seen) if is_normalised(seen) else None
    if found is None:
        return None
    known = found.visible.any(dim=-1)
    logits = (seen.scores * found.slopes).masked_fill(~found.visible, float("-inf"))
    return found if is_close(seen, logits.softmax(dim=-1)[known], seen.plain[known]) else None


def is_definition(seen: Observation) -> bool:
    found = _is_plain(seen)
    if found is None or seen.scale is None or seen.attention.scores is None:
        return False
    return is_close(seen, found.slopes, torch.full_like(found.slopes, _wanted(seen)))


def _wanted(seen: Observation) -> float:
    """1/√(head width) over what queries and keys were multiplied by before they met."""
    return 1.0 if seen.scale is None else 1 / (math.sqrt(seen.scale.width) * math.prod(_before(seen)))


def _before(seen: Observation) -> list[float]:
    """By what queries and keys were multiplied before they met, or by the product that they met in."""
    path = [*seen.attention.path, seen.attention.context]
    factors = () if seen.scale is None else seen.scale.factors
    scores = seen.attention.scores
    return [each.value for each in factors if each.entry is scores or all(each.entry is not one for one in path)]


def is_scaled_otherwise(seen: Observation) -> bool:
    """Whether the scale is another than 1/√(head width): one that was judged, a learned one, or one of unit vectors."""
    found = None if seen.attention.scores is None else _is_plain(seen)
    return found is not None and _is_judged(seen, found.slopes)


def _is_judged(seen: Observation, slopes: Tensor) -> bool:
    """Whether by how much weights follow the scores is what they were seen to be multiplied by, or is learned."""
    scale, scores = seen.scale, seen.attention.scores
    if scale is None or scores is None:
        return False
    if scale.normed or is_learned_after(seen, scores.at):
        return True
    wanted = scale.total / math.prod(_before(seen))
    return not scale.bent and is_close(seen, slopes, torch.full_like(slopes, wanted))


def is_sharpened(seen: Observation) -> bool:
    """Whether weights are a power of what one softmax gave, shared out anew."""
    found, softmaxes = _is_plain(seen), softmaxes_of(seen.attention)
    if found is None or seen.scale is None or seen.scale.bent or len(softmaxes) != 1:
        return False
    powers = found.slopes * math.prod(_before(seen)) / seen.scale.total
    power = float(powers.mean())
    marks, values = softmaxes[0].made[0], seen.softmaxes[0][SHARES.index(1.0)]
    axis = key_axis(marks, seen.attention) if marks is not None and marks.kind == "pair" else None
    if axis is None or not is_close(seen, powers, torch.full_like(powers, power)):
        return False
    raised = values.movedim(axis, -1) ** power
    shares = (raised / raised.sum(dim=-1, keepdim=True)).nan_to_num()
    return is_close(seen, shares.flatten().sort().values, seen.plain.nan_to_num().flatten().sort().values)


def is_additive(seen: Observation) -> bool:
    """Whether scores are what learned weights make of the sum of a query and a key."""
    return seen.attention.scores is None and _is_plain(seen) is not None


def is_biased(seen: Observation) -> bool:
    """Whether what is added to the scores is the same for other inputs."""
    found = softmax_of(seen) if is_normalised(seen) else None
    if found is None or seen.other is None or seen.other[0].shape != seen.scores.shape:
        return False
    scores, weights = seen.other
    visible = found.visible & (weights > least_of(seen))
    pairs = ((seen.plain, seen.scores), (weights, scores))
    rest = [a.clamp(min=least_of(seen)).log() - found.slopes * b for a, b in pairs]
    left = centred(rest[0] - rest[1], visible)
    is_fixed = is_close(seen, left, torch.zeros_like(left), size=float(rest[0].abs().max()))
    return is_fixed and _is_judged(seen, found.slopes)


def is_sunk(seen: Observation) -> bool:
    """Whether what the weights lack of 1 went to a logit that does not follow the scores."""
    found = softmax_of(seen)
    low, _, high = (1 - each.sum(dim=-1, keepdim=True) for each in seen.weights)
    if found is None or bool((low <= LEAST).any()) or bool((high <= LEAST).any()):
        return False
    moved = (high.log() - low.log()) / (SHARES[-1] - SHARES[0])
    known = found.visible.any(dim=-1)
    return is_close(seen, moved[known], found.moved[known])


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
    bent, visible = (seen.scores * share).tanh(), visible_in(seen)
    logs = seen.plain.clamp(min=least_of(seen)).log()
    slopes = slopes_of(centred(logs, visible), centred(bent, visible), seen.heads)
    left = centred(logs - slopes * bent, visible)
    size = float(logs.abs().max())
    is_tanh = is_close(seen, b, a * share) and is_close(seen, left, torch.zeros_like(left), size=size)
    own = slopes[visible.any(dim=-1, keepdim=True)]
    # without a cap they would be multiplied by this
    total = own * share * math.prod(_before(seen))
    is_scaled = not is_close(seen, total, torch.ones_like(total)) or (seen.scale is not None and seen.scale.normed)
    return is_tanh and is_scaled and is_normalised(seen) and bool((own > 0).all())


def has_further_terms(seen: Observation) -> bool:
    """Whether scores are added to others that follow the inputs, as of distances, before a softmax."""
    if not is_normalised(seen) or _is_plain(seen) is not None or is_shifted(seen):
        return False
    return softmax_of(seen) is not None or (is_one_softmax(seen) and follow_evenly(seen))


def is_normalised_late(seen: Observation) -> bool:
    """Whether the weighted sum is divided by what the weights of its query sum to."""
    if softmax_of(seen) is None:
        return False
    sums = seen.plain.sum(dim=-1).flatten()
    for entry in seen.run.seen:
        if entry.at > seen.attention.context.at and entry.operation.name in DIVISIONS:
            values = [each.value for each in entry.operation.inputs[1:] if each.value is not None]
            if any(each.numel() == sums.numel() and is_close(seen, each.detach().double().flatten(), sums)
                   for each in values):  # fmt: skip
                return True
    return False


def is_shared_among_queries(seen: Observation) -> bool:
    """Whether each key shares itself out among the queries, and a query weighs its shares anew or as they are."""
    visible, softmaxes = visible_in(seen), softmaxes_of(seen.attention)
    if not bool(visible.any()) or len(softmaxes) != 1 or bool((seen.plain < 0).any()):
        return False
    made, value = softmaxes[0].made[0], softmaxes[0].operation.outputs[0].value
    if made is None or made.kind != "pair" or value is None:
        return False
    is_among = any(
        is_constant(made.arrays[seen.attention.keys], axis) and sums_to_one(value, axis) for axis in range(value.ndim)
    )
    low, _, high = logs_of(seen)
    scores = centred_both(seen.scores, visible)
    step = centred_both((high - low) / (SHARES[-1] - SHARES[0]), visible)
    slopes = slopes_of(step, scores, seen.heads)
    # a small number may be added to the shares
    is_near = bool(((step - slopes * scores).abs() <= 1e-4 * max(1.0, float(step.abs().max()))).all())
    return is_among and bool((slopes > 0).all()) and is_near


def is_sigmoid(seen: Observation) -> bool:
    visible = visible_in(seen) & torch.stack([each < 1 - LEAST for each in seen.weights]).all(dim=0)
    if not bool(visible.any()):
        return False
    low, plain, high = (torch.where(visible, each, 0.5).logit() for each in seen.weights)
    step, scores = (high - low) / (SHARES[-1] - SHARES[0]), torch.where(visible, seen.scores, 0.0)
    slopes = slopes_of(step, scores, seen.heads)
    even = is_close(seen, high - plain, plain - low)
    # weights that stay as they are where all scores are larger, as unit vectors do, follow no sigmoid
    return even and bool((slopes > LEAST).any()) and is_close(seen, step, slopes * scores)


def is_relu(seen: Observation, *, power: int = 1) -> bool:
    return _is_times(seen, torch.where(_hidden(seen), 0.0, seen.scores).clamp(min=0) ** power)


def _hidden(seen: Observation) -> Tensor:
    """Entries to which a mask gives no weight; without a mask none."""
    is_nothing = torch.stack([each.abs() <= LEAST for each in seen.weights]).all(dim=0)
    return is_nothing & bool(seen.run.plan.mask)


def _is_times(seen: Observation, wanted: Tensor) -> bool:
    squares = float((wanted * wanted).sum())
    factor = float((seen.plain * wanted).sum()) / squares if squares else 0.0
    return factor > 0 and is_close(seen, seen.plain / factor, wanted)


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
    return bool((first >= -LEAST).all()) and bool((first > 0).any()) and is_close(seen, first, second)
