"""Mask effects: what a mask does instead of hiding what it means, told by the weights alone."""

from __future__ import annotations

import torch
from torch import Tensor

from headwise.dataflow import LEARNED, AttentionPattern, Run
from headwise.diagnosis.checks.weight_sums import TOLERANCE
from headwise.diagnosis.padding_tokens import is_said_in_front

__all__ = ["also_wrong", "is_shared_out", "mistaken", "source_turned", "wanted_pairs"]

CLEAR = 1e-4
# a mask is looked for up to so many places off
MOST_SHIFTED = 8


def mistaken(masked: AttentionPattern, free: AttentionPattern, allowed: Tensor, wanted: Tensor) -> str:
    """The kind of what is wrong; empty: nothing. masked, free: the weights with the mask, and with none. allowed: the
    keys that the mask leaves to each query; wanted: the same, laid out as the weights are.
    """
    weights = masked.weights.nan_to_num()
    is_below = (weights < -1) | ((weights < -TOLERANCE) & ~wanted)
    if bool(is_below.any()) and bool((free.weights.nan_to_num() >= 0).all()):
        # what is meant for scores was given to weights; in the difference of two maps seen keys may have less than 0
        return "mask-after-softmax"
    # what is nearly nothing without the mask tells nothing of it
    before = free.weights.nan_to_num() > CLEAR
    right = before & wanted
    has_some = right.any(dim=-1, keepdim=True) & ~_padded(masked, allowed)
    visible = masked.visible & before
    if bool(((visible == right) | ~has_some).all()):
        return "mask-after-softmax" if _loses_weight(masked, free, has_some) else ""
    if torch.allclose(masked.weights.nan_to_num(), free.weights.nan_to_num(), atol=1e-9):
        return "mask-ignored"
    if _adds_itself(masked, visible, right, before):
        return "mask-after-softmax" if _loses_weight(masked, free, has_some) else ""
    if _is_displaced(masked, allowed, before):
        return "mask-shifted"
    wrong = before & ~wanted
    has_wrong = wrong.any(dim=-1, keepdim=True)
    if bool(has_wrong.any()) and bool(((visible == wrong) | ~has_wrong).all()):
        return "mask-inverted"
    if source_turned(masked, before, wanted) is not None:
        return "mask-inverted"
    if bool((visible == before).all()):
        # nothing is hidden: whole queries are made alike, or what should be nothing is too much
        return "mask-axis" if _levels_rows(masked, free, before) else "mask-weak-fill"
    if _is_of_rows(masked, allowed, before):
        return "mask-axis"
    if another := _of_another(masked, allowed, before):
        return another
    if _is_shifted(masked, allowed, before):
        return "mask-shifted"
    if bool((masked.weights.isnan().any(dim=-1, keepdim=True) & right.any(dim=-1, keepdim=True)).any()):
        # a query that has keys to see
        return "mask-nan"
    if bool((visible | ~before | ~has_some).all()):
        return "mask-weak-fill"
    return "mask-broadcast"


def _loses_weight(masked: AttentionPattern, free: AttentionPattern, rows: Tensor) -> bool:
    """Whether weights of some of these rows sum to another number with the mask than without."""
    total, before = (pattern.weights.nan_to_num().sum(dim=-1, keepdim=True) for pattern in (masked, free))
    return bool((((total - before).abs() > TOLERANCE) & rows).any())


def source_turned(masked: AttentionPattern, before: Tensor, wanted: Tensor) -> int | None:
    """The argument of whose keys just those are seen that a mask hides, beside keys of others, none of which is seen: a
    mask that keeps these always was turned round with the rest; None: there is none.
    """
    visible, sources = masked.visible & before, torch.unique(masked.source)
    for source in sources if len(sources) > 1 else ():
        mine = masked.source == source
        wrong = before & ~wanted & mine
        rows = wrong.any(dim=-1, keepdim=True)
        is_own = bool(((visible == wrong) | ~rows | ~mine).all()) and bool((before & wanted & mine & rows).any())
        if is_own and bool(rows.any()) and not bool((visible & ~mine & rows).any()):
            return int(source)
    return None


def _padded(masked: AttentionPattern, allowed: Tensor) -> Tensor:
    """Rows of tokens that the mask itself hides, which see all, or beside themselves nothing that is hidden: nobody
    reads them.
    """
    if allowed.shape[1] != allowed.shape[2] or not bool((allowed == allowed[:, :1]).all()):
        return torch.zeros_like(masked.weights[..., :1], dtype=torch.bool)
    hidden = ~allowed[masked.sample[..., :1], 0, masked.row[..., :1]]
    shown = allowed[masked.sample, 0, masked.column]
    apart = (~masked.visible | shown | (masked.row == masked.column)).all(dim=-1, keepdim=True)
    return hidden & (~masked.seeing | apart | masked.visible.all(dim=-1, keepdim=True))


def _levels_rows(masked: AttentionPattern, free: AttentionPattern, before: Tensor) -> bool:
    """Whether a mask changes some queries only, and lets these see all keys alike: it is on their axis."""
    weights, was = masked.weights.nan_to_num(), free.weights.nan_to_num()
    changed = ((weights - was).abs() > CLEAR).any(dim=-1)
    count = before.sum(dim=-1, keepdim=True).clamp(min=1)
    mean = (weights * before).sum(dim=-1, keepdim=True) / count
    is_level = (((weights - mean).abs() < TOLERANCE) | ~before).all(dim=-1)
    return bool(changed.any()) and not bool(changed.all()) and bool(is_level[changed].all())


def _of_another(masked: AttentionPattern, allowed: Tensor, before: Tensor) -> str:
    """Whether each head of each sample is hidden what the mask hides from some sample, but not always its own: from one
    and the same, or from others.
    """
    every, is_own = torch.ones(allowed.shape[0], dtype=torch.bool), True
    own = (masked.row == masked.column) & before & masked.seeing
    sees_itself = bool(own.any()) and bool(masked.visible[own].all())
    for problem in range(masked.weights.shape[0]):
        rows, columns = masked.row[problem], masked.column[problem]
        # where each token sees itself whatever the mask is, that tells nothing of it
        usable = before[problem] & ~((rows == columns) & masked.visible[problem] & sees_itself)
        visible = masked.visible[problem] & usable
        fits = [_is_hidden_by(mask, visible, usable, rows, columns) for mask in allowed]
        if not any(fits):
            return ""
        every &= torch.tensor(fits)
        is_own &= fits[int(masked.sample[problem].flatten()[0])]
    # what fits its own mask everywhere has no other
    return "" if is_own else "mask-broadcast" if bool(every.any()) else "mask-repeat-order"


def _is_hidden_by(mask: Tensor, visible: Tensor, usable: Tensor, rows: Tensor, columns: Tensor) -> bool:
    """Whether queries see just the keys that a mask of one sample shows; one to which it leaves none may see all, and
    that of a token which it hides none.
    """
    right = usable & mask[rows, columns]
    is_level = (visible == usable).all(dim=-1, keepdim=True) | ~visible.any(dim=-1, keepdim=True)
    is_free = ~right.any(dim=-1, keepdim=True) & is_level
    if mask.shape[0] == mask.shape[1]:
        is_free |= ~visible.any(dim=-1, keepdim=True) & ~mask.diagonal()[rows[..., :1]]
    return bool(((visible == right) | is_free).all())


def _is_shifted(masked: AttentionPattern, allowed: Tensor, before: Tensor) -> bool:
    """Whether each key is seen where the mask allows one that stands a fixed number of places beside it."""
    columns = allowed.shape[2]
    # as many places as there are keys beside the tokens need fewer of them to tell
    beside = int((masked.source[0, 0] >= LEARNED).sum())
    own, visible = (masked.source < LEARNED) & before, masked.visible & before
    for shift in (each for far in range(1, MOST_SHIFTED + 1) for each in (far, -far)):
        place = masked.column + shift
        is_within = own & (place >= 0) & (place < columns)
        wanted = allowed[masked.sample, masked.row, place.clamp(0, columns - 1)]
        rows = (is_within & wanted).any(dim=-1, keepdim=True)
        is_told = abs(shift) == beside or int(masked.column[is_within].unique().numel()) > 1
        is_told &= bool((is_within & rows & ~wanted).any() | (is_within & rows & ~visible).any())
        if is_told and bool(((visible == wanted) | ~is_within | ~rows).all()):
            return True
    return False


def _is_displaced(masked: AttentionPattern, allowed: Tensor, before: Tensor) -> bool:
    """Whether a mask of the tokens is laid whole over keys that are learned beside them, and begins elsewhere."""
    own, count = (masked.source < LEARNED).flatten(0, -2), allowed.shape[2]
    if own.shape[-1] <= count or bool((own != own[:1]).any()) or int(own[0].sum()) != count:
        return False
    visible = masked.visible | ~before
    rows = allowed[masked.sample[..., 0], masked.row[..., 0]]
    for first in range(own.shape[-1] - count + 1):
        laid = torch.ones_like(visible)
        laid[..., first : first + count] = rows
        is_elsewhere = not bool(own[0, first : first + count].all())
        if is_elsewhere and not bool(rows.all()) and bool((visible == laid)[before.any(dim=-1)].all()):
            return True
    return False


def _is_of_rows(masked: AttentionPattern, allowed: Tensor, before: Tensor) -> bool:
    """Whether what should hide keys hides queries."""
    if allowed.shape[1] != allowed.shape[2]:
        return False
    right = before & allowed.transpose(1, 2)[masked.sample, masked.row, masked.column]
    return bool((((masked.visible & before) == right) | ~right.any(dim=-1, keepdim=True)).all())


def _adds_itself(masked: AttentionPattern, visible: Tensor, right: Tensor, before: Tensor) -> bool:
    """Whether each token sees what the mask lets it see, and itself besides: so that no row is empty."""
    is_own = (masked.row == masked.column).expand(visible.shape)
    # of several tokens of one place, such as a state and an action, each sees itself
    # without the mask a token may be nearly nothing to itself
    usable = masked.seeing.expand(visible.shape) & before
    sees_own, rows = (visible & is_own).any(dim=-1), (usable & is_own).any(dim=-1)
    return bool((visible == (right | (is_own & visible))).all()) and bool(sees_own[rows].all())


def also_wrong(kind: str, masked: AttentionPattern, free: AttentionPattern, wanted: Tensor) -> str:
    """What is wrong besides with a mask that comes too late, or is turned round: the other of the two; "": no."""
    before, weights = free.weights.nan_to_num() > CLEAR, masked.weights.nan_to_num()
    if kind == "mask-inverted":
        is_lost = (weights.sum(dim=-1) - free.weights.nan_to_num().sum(dim=-1)).abs() > TOLERANCE
        return "mask-after-softmax" if bool(is_lost.any()) else ""
    mixed = (before & wanted).any(dim=-1, keepdim=True) & (before & ~wanted).any(dim=-1, keepdim=True)
    hidden = before & (weights <= TOLERANCE)
    is_turned = bool(((hidden == (before & wanted)) | ~mixed).all()) and bool(mixed.any())
    return "mask-inverted" if kind == "mask-after-softmax" and is_turned else ""


def is_shared_out(free: AttentionPattern) -> bool:
    """Whether each query shares itself out among its keys, whatever did it: the weights sum to 1."""
    return bool(((free.weights.nan_to_num().sum(dim=-1) - 1).abs() <= TOLERANCE).all())


def wanted_pairs(run: Run, allowed: Tensor, masked: AttentionPattern, free: AttentionPattern) -> Tensor:
    """Which pairs of an attention a mask should let see each other. allowed: by its numbers, (batch, queries, keys)."""
    others = _of_others(masked, free)
    # a mask of the tokens says nothing of what is learned beside them
    others |= (masked.source >= LEARNED) & bool((masked.source < LEARNED).any())
    wanted = allowed[masked.sample, masked.row, masked.column] | others
    if run.plan.call["_mask"]["means"] == "lengths" and is_said_in_front(type(run.target)):
        backward = allowed[masked.sample, masked.row, _counted_backward(masked, free)] | others
        if torch.equal(masked.visible & free.visible, backward & free.visible):
            # lengths count from the other end where padding is said to be in front, and the keys fit
            return backward
    return wanted


def _of_others(masked: AttentionPattern, free: AttentionPattern) -> Tensor:
    """Which keys are of an argument none of whose keys a mask hides, where it hides some of those of another."""
    hidden = free.visible & ~masked.visible
    if not bool(hidden.any()):
        # what hides keys does so without a mask too, as where it stands in for one
        hidden = ~masked.visible & masked.seeing
    touched = torch.unique(masked.source[hidden])
    # what is learned has no mask
    touched = touched[touched < LEARNED]
    return ~torch.isin(masked.source, touched) if touched.numel() else torch.zeros_like(hidden)


def _counted_backward(masked: AttentionPattern, free: AttentionPattern) -> Tensor:
    """The place of each key counted from the last one of what the mask is of, as lengths count what has padding before
    it.
    """
    hidden = masked.source[free.visible & ~masked.visible]
    is_own = torch.isin(masked.source, torch.unique(hidden)) if hidden.numel() else torch.ones_like(masked.visible)
    return torch.where(is_own, masked.column[is_own].max() - masked.column, masked.column)
