"""Head mixtures: weights that are made of several softmaxes, or of those of several heads."""

from __future__ import annotations

import torch
from torch import nn

from headwise.dataflow import made_from
from headwise.diagnosis.observation import SHARES, Observation, softmaxes_of
from headwise.diagnosis.sensitivity import is_close, is_normalised, moves_evenly

__all__ = ["follow_evenly", "is_learned_after", "is_mixed", "is_one_softmax"]


def is_learned_after(observation: Observation, at: int) -> bool:
    """Whether parameters take part in what is done on the way to the weights after an operation."""
    later = [entry for entry in observation.attention.path if entry.at > at]
    makers = [*later, *made_from(observation.run, later)]
    return any(isinstance(tensor, nn.Parameter) for maker in makers for tensor in maker.tensors)


def is_mixed(observation: Observation) -> bool:
    """Whether weights are sums of softmaxes over keys, of logits that follow the scores evenly."""
    if is_one_softmax(observation) or not follow_evenly(observation):
        return False
    softmaxes = softmaxes_of(observation.attention)
    if len(softmaxes) > 1 or is_normalised(observation) or is_learned_after(observation, softmaxes[0].at):
        return True
    # other keys may have the rest; but one softmax times a number that nothing learns is no mixture
    return bool(torch.isin(observation.plain, observation.softmaxes[0][SHARES.index(1.0)]).all())


def follow_evenly(observation: Observation) -> bool:
    """Whether weights are linear in softmaxes over keys, but for a learned bias, of logits that follow the scores."""
    softmaxes = softmaxes_of(observation.attention)
    if not softmaxes or not _is_affine(observation) or not is_close(observation, observation.fixed, observation.plain):
        return False
    if not len(observation.softmaxes) == len(observation.shifted) == len(softmaxes):
        return False
    for entry, values, shifted in zip(softmaxes, observation.softmaxes, observation.shifted, strict=True):
        axis = observation.attention.key_axis(entry)
        if axis is None or any(not tensor.numel() for tensor in (*values, *shifted)):
            return False
        low, plain, high = (value.movedim(axis, -1) for value in values)
        sums = plain.sum(dim=-1)
        # nothing of it follows the scores where low and high are alike
        if not is_close(observation, sums, torch.ones_like(sums)) or is_close(observation, low, high):
            return False
        # what bends at 0, as a ReLU of scores, moves evenly where they are multiplied, and not where they are added to
        below, above = (tensor.movedim(axis, -1) for tensor in shifted)
        if not moves_evenly(observation, low, plain, high) or not moves_evenly(observation, below, plain, above):
            return False
    return True


def is_one_softmax(observation: Observation) -> bool:
    """Whether the weights are, in some order, what one softmax gave: nothing was added to it, nor its heads mixed."""
    if len(observation.softmaxes) != 1:
        return False
    shares = observation.softmaxes[0][SHARES.index(1.0)]
    first, second = (tensor.nan_to_num().flatten().sort().values for tensor in (shares, observation.plain))
    return is_close(observation, first, second)


def _is_affine(observation: Observation) -> bool:
    """Whether weights are linear in what the softmaxes give, but for one learned number for each head that is added."""
    if is_close(observation, observation.doubled, 2 * observation.plain):
        return True
    bias = observation.emptied
    if bias is None or not is_learned_after(observation, softmaxes_of(observation.attention)[-1].at):
        return False
    is_linear = is_close(observation, observation.doubled - bias, 2 * (observation.plain - bias))
    return is_linear and is_close(observation, bias, bias[:, :1, :1].expand_as(bias))
