"""Formulas: whether weights follow from scores as a design of the table says."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from headwise.dataflow import MULTIPLICATIONS, is_constant
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
from headwise.diagnosis.token_weights import says_raw

__all__ = [
    "has_further_terms", "is_additive", "is_biased", "is_capped", "is_decayed", "is_definition",
    "is_normalised_late", "is_of_nearest", "is_pointwise", "is_relu", "is_scaled_otherwise", "is_shared_among_queries",
    "is_shared_relu", "is_sharpened", "is_sigmoid", "is_sunk", "is_unshared",
]  # fmt: skip

ACTIVATIONS = frozenset({"silu", "gelu", "softplus", "elu"})
DIVISIONS = frozenset({"/", "/=", "div", "div_", "true_divide"})


def _is_plain(observation: Observation) -> Slopes | None:
    """How weights that are softmax(c · scores), with nothing added but what hides keys, follow scores; None: not so."""
    slopes = softmax_of(observation) if is_normalised(observation) else None
    if slopes is None:
        return None
    is_known = slopes.visible.any(dim=-1)
    logits = (observation.scores * slopes.slopes).masked_fill(~slopes.visible, float("-inf"))
    return slopes if is_close(observation, logits.softmax(dim=-1)[is_known], observation.plain[is_known]) else None


def is_definition(observation: Observation) -> bool:
    slopes = _is_plain(observation)
    if slopes is None or observation.scale is None or observation.attention.scores is None:
        return False
    return is_close(observation, slopes.slopes, torch.full_like(slopes.slopes, _wanted(observation)))


def _wanted(observation: Observation) -> float:
    """1/√(head width) over what queries and keys were multiplied by before they met."""
    return (
        1.0 if observation.scale is None else 1 / (math.sqrt(observation.scale.width) * math.prod(_before(observation)))
    )


def _before(observation: Observation) -> list[float]:
    """By what queries and keys were multiplied before they met, or by the product that they met in."""
    path = [*observation.attention.path, observation.attention.context]
    factors = () if observation.scale is None else observation.scale.factors
    scores = observation.attention.scores
    return [factor.value for factor in factors if factor.entry is scores or all(factor.entry is not op for op in path)]


def is_scaled_otherwise(observation: Observation) -> bool:
    """Whether the scale is another than 1/√(head width): one that was judged, a learned one, or one of unit vectors."""
    is_of_pairs = observation.attention.scores is not None and not observation.is_pooled
    slopes = _is_plain(observation) if is_of_pairs else None
    return slopes is not None and _is_judged(observation, slopes.slopes)


def is_of_nearest(observation: Observation) -> bool:
    """Whether each key has the score of the queries together, which is scaled no more."""
    slopes = _is_plain(observation) if observation.is_pooled else None
    return slopes is not None and is_close(observation, slopes.slopes, torch.ones_like(slopes.slopes))


def _is_judged(observation: Observation, slopes: Tensor) -> bool:
    """Whether by how much weights follow the scores is what they were seen to be multiplied by, or is learned."""
    scale, scores = observation.scale, observation.attention.scores
    if scale is None or scores is None:
        return False
    if scale.normed or is_learned_after(observation, scores.at):
        return True
    wanted = scale.total / math.prod(_before(observation))
    return not scale.bent and is_close(observation, slopes, torch.full_like(slopes, wanted))


def is_sharpened(observation: Observation) -> bool:
    """Whether weights are a power of what one softmax gave, shared out anew."""
    slopes, softmaxes = _is_plain(observation), softmaxes_of(observation.attention)
    if slopes is None or observation.scale is None or observation.scale.bent or len(softmaxes) != 1:
        return False
    powers = slopes.slopes * math.prod(_before(observation)) / observation.scale.total
    power = float(powers.mean())
    axis, values = observation.attention.key_axis(softmaxes[0]), observation.softmaxes[0][SHARES.index(1.0)]
    if axis is None or not is_close(observation, powers, torch.full_like(powers, power)):
        return False
    raised = values.movedim(axis, -1) ** power
    shares = (raised / raised.sum(dim=-1, keepdim=True)).nan_to_num()
    return is_close(observation, shares.flatten().sort().values, observation.plain.nan_to_num().flatten().sort().values)


def is_additive(observation: Observation) -> bool:
    """Whether scores are what learned weights make of the sum of a query and a key."""
    path = observation.attention.path
    # entries of queries times those of keys that are added up are a product, however it is written
    multiplied = [step for step in path if step.last in MULTIPLICATIONS and all(step.given) and len(step.given) > 1]
    is_product = any(step.last == "sum" and step.at > each.at for each in multiplied for step in path)
    return observation.attention.scores is None and not is_product and _is_plain(observation) is not None


def is_biased(observation: Observation) -> bool:
    """Whether what is added to the scores is the same for other inputs."""
    slopes = softmax_of(observation) if is_normalised(observation) else None
    if slopes is None or observation.other is None or observation.other[0].shape != observation.scores.shape:
        return False
    scores, weights = observation.other
    visible = slopes.visible & (weights > least_of(observation))
    pairs = ((observation.plain, observation.scores), (weights, scores))
    rest = [a.clamp(min=least_of(observation)).log() - slopes.slopes * b for a, b in pairs]
    left = centred(rest[0] - rest[1], visible)
    is_fixed = is_close(observation, left, torch.zeros_like(left), size=float(rest[0].abs().max()))
    return is_fixed and _is_judged(observation, slopes.slopes)


def is_sunk(observation: Observation) -> bool:
    """Whether what the weights lack of 1 went to a logit that does not follow the scores."""
    slopes = softmax_of(observation)
    low, _, high = (1 - weight.sum(dim=-1, keepdim=True) for weight in observation.weights)
    if slopes is None or bool((low <= LEAST).any()) or bool((high <= LEAST).any()):
        return False
    moved = (high.log() - low.log()) / (SHARES[-1] - SHARES[0])
    is_known = slopes.visible.any(dim=-1)
    return is_close(observation, moved[is_known], slopes.moved[is_known])


def is_capped(observation: Observation) -> bool:
    """Whether logits are c · tanh(scores · s), by the two numbers that tanh was called with and gave."""
    bends = [entry for entry in observation.attention.path if entry.last in ("tanh", "tanh_")]
    scores = observation.attention.scores
    inner = bends[0].inputs[0].value if len(bends) == 1 else None
    value = None if scores is None else scores.outputs[0].value
    softmaxes = softmaxes_of(observation.attention)
    if inner is None or value is None or inner.numel() != value.numel() or len(softmaxes) != 1:
        return False
    a, b = (tensor.detach().double().flatten() for tensor in (value, inner))
    share = float((a * b).sum() / (a * a).sum())
    bent, visible = (observation.scores * share).tanh(), visible_in(observation)
    logs = observation.plain.clamp(min=least_of(observation)).log()
    slopes = slopes_of(centred(logs, visible), centred(bent, visible), observation.heads)
    left = centred(logs - slopes * bent, visible)
    size = float(logs.abs().max())
    is_tanh = is_close(observation, b, a * share) and is_close(observation, left, torch.zeros_like(left), size=size)
    used_slopes = slopes[visible.any(dim=-1, keepdim=True)]
    # without a cap they would be multiplied by this
    total = used_slopes * share * math.prod(_before(observation))
    is_scaled = not is_close(observation, total, torch.ones_like(total)) or (
        observation.scale is not None and observation.scale.normed
    )
    return is_tanh and is_scaled and is_normalised(observation) and bool((used_slopes > 0).all())


def has_further_terms(observation: Observation) -> bool:
    """Whether scores are added to others that follow the inputs, as of distances, before a softmax."""
    if not is_normalised(observation) or _is_plain(observation) is not None or is_shifted(observation):
        return False
    return softmax_of(observation) is not None or (is_one_softmax(observation) and follow_evenly(observation))


def is_normalised_late(observation: Observation) -> bool:
    """Whether the weighted sum is divided by what the weights of its query sum to."""
    if softmax_of(observation) is None:
        return False
    sums = observation.plain.sum(dim=-1).flatten()
    for entry in observation.run.seen:
        if entry.at > observation.attention.context.at and entry.name in DIVISIONS:
            values = [tensor.value for tensor in entry.inputs[1:] if tensor.value is not None]
            if any(value.numel() == sums.numel() and is_close(observation, value.detach().double().flatten(), sums)
                   for value in values):  # fmt: skip
                return True
    return False


def is_shared_among_queries(observation: Observation) -> bool:
    """Whether each key shares itself out among the queries, and a query weighs its shares anew or as they are."""
    visible, softmaxes = visible_in(observation), softmaxes_of(observation.attention)
    if not bool(visible.any()) or len(softmaxes) != 1 or bool((observation.plain < 0).any()):
        return False
    marks, value = softmaxes[0].pair, softmaxes[0].value
    if marks is None or value is None:
        return False
    is_among = any(
        is_constant(marks.arrays[observation.attention.keys], axis) and sums_to_one(value, axis)
        for axis in range(value.ndim)
    )
    low, _, high = logs_of(observation)
    scores = centred_both(observation.scores, visible)
    step = centred_both((high - low) / (SHARES[-1] - SHARES[0]), visible)
    slopes = slopes_of(step, scores, observation.heads)
    # a small number may be added to the shares
    is_near = bool(((step - slopes * scores).abs() <= 1e-4 * max(1.0, float(step.abs().max()))).all())
    return is_among and bool((slopes > 0).all()) and is_near


def is_sigmoid(observation: Observation) -> bool:
    visible = visible_in(observation) & torch.stack([weight < 1 - LEAST for weight in observation.weights]).all(dim=0)
    if not bool(visible.any()):
        return False
    low, plain, high = (torch.where(visible, weight, 0.5).logit() for weight in observation.weights)
    step, scores = (high - low) / (SHARES[-1] - SHARES[0]), torch.where(visible, observation.scores, 0.0)
    slopes = slopes_of(step, scores, observation.heads)
    even = is_close(observation, high - plain, plain - low)
    # weights that stay as they are where all scores are larger, as unit vectors do, follow no sigmoid
    return even and bool((slopes > LEAST).any()) and is_close(observation, step, slopes * scores)


def is_relu(observation: Observation, *, power: int = 1) -> bool:
    return _is_times(observation, torch.where(_hidden(observation), 0.0, observation.scores).clamp(min=0) ** power)


def is_pointwise(observation: Observation) -> bool:
    """Whether each weight is a smooth activation of its own score, to which anything may be added, times one number."""
    path = observation.attention.path
    places = [at for at, entry in enumerate(path) if entry.last in ACTIVATIONS]
    taken = observation.taken_by(places[0]) if len(places) == 1 and not softmaxes_of(observation.attention) else None
    if taken is None:
        return False
    # of a smooth activation nothing is 0 but what is hidden
    visible = ~_nothing(observation)
    step, scores = (torch.where(visible, each, 0.0) for each in (taken[1] - taken[0], observation.scores))
    slopes = slopes_of(step, scores, observation.heads)
    is_even = is_close(observation, step, slopes * scores) and bool((slopes > 0).all())
    if not bool(visible.any()) or not is_even:
        return False
    # as it is called, approximately or with a slope of its own
    arguments, options = path[places[0]].rules
    made = path[places[0]].function(taken[0].clone(), *arguments[1:], **options)
    return _is_times(observation, torch.where(visible, made, 0.0))


def _hidden(observation: Observation) -> Tensor:
    """Entries to which a mask gives no weight; without a mask none."""
    return _nothing(observation) & bool(observation.run.plan.mask)


def _nothing(observation: Observation) -> Tensor:
    """Entries without weight, whatever the scores are."""
    return torch.stack([weight.abs() <= LEAST for weight in observation.weights]).all(dim=0)


def _is_times(observation: Observation, wanted: Tensor) -> bool:
    squares = float((wanted * wanted).sum())
    factor = float((observation.plain * wanted).sum()) / squares if squares else 0.0
    return factor > 0 and is_close(observation, observation.plain / factor, wanted)


def is_shared_relu(observation: Observation) -> bool:
    wanted = torch.where(_hidden(observation), 0.0, observation.scores).clamp(min=0)
    sums = wanted.sum(dim=-1, keepdim=True)
    is_known = sums.squeeze(-1) > LEAST
    # a small number may be added to the sum
    near = (observation.plain - wanted / sums.clamp(min=LEAST))[is_known]
    return bool(is_known.any()) and bool((near.abs() <= 1e-3).all())


def is_unshared(observation: Observation) -> bool:
    """Whether weights are scores times one number; where no product of queries and keys makes these, words say so."""
    attention = observation.attention
    if attention.scores is None and not says_raw(attention.context.span):
        return False
    return _is_times(observation, torch.where(_hidden(observation), 0.0, observation.scores))


def is_decayed(observation: Observation) -> bool:
    """Whether weights are scores times numbers that are the same for other inputs, and none below 0."""
    if observation.other is None or observation.other[0].shape != observation.scores.shape:
        return False
    if observation.attention.scores is None:
        # scores of a layer of weights are shared out, or said to be raw
        return False
    pairs = ((observation.plain, observation.scores), (observation.other[1], observation.other[0]))
    if any(bool(((b.abs() <= LEAST) & (a.abs() > LEAST)).any()) for a, b in pairs):
        return False
    is_known = (observation.scores.abs() > LEAST) & (observation.other[0].abs() > LEAST)
    first, second = (torch.where(is_known, a, 0.0) / torch.where(is_known, b, 1.0) for a, b in pairs)
    return bool((first >= -LEAST).all()) and bool((first > 0).any()) and is_close(observation, first, second)
