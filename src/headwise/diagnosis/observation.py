"""Observation: scores and weights of each attention of a run side by side, and how weights answer to other scores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from headwise.diagnosis.checks.sharing import weights_of
from headwise.diagnosis.following.anatomy import Attention, attentions, is_scores, operand_marks
from headwise.diagnosis.following.factors import Scale, scales
from headwise.diagnosis.following.marks import Marks
from headwise.diagnosis.following.relations import plain_scores
from headwise.diagnosis.following.replacing import Site, site_of
from headwise.diagnosis.following.running import Run
from headwise.diagnosis.following.shadow import Seen

__all__ = ["SHARES", "Observation", "observations", "softmaxes_of"]

# by what the scores are multiplied besides, to see how the weights answer: evenly about 1
SHARES = (0.5, 1.0, 1.5)
SOFTMAXES = frozenset({"softmax", "_softmax"})


@dataclass(frozen=True)
class Observation:
    """One attention of a run. scores: what it makes of queries and keys before any scale, laid out as its weights are,
    and weights: with the scores multiplied by each of `SHARES`; all (problems, queries, keys). heads: the number of the
    head of each row, (problems, queries, 1). softmaxes: what each softmax gave, for each of `SHARES`. doubled: the
    weights where each softmax gives twice as much. other: scores and weights for other inputs. scale: None: not known.
    """

    run: Run
    attention: Attention
    scores: Tensor
    heads: Tensor
    weights: tuple[Tensor, ...]
    softmaxes: tuple[tuple[Tensor, ...], ...]
    doubled: Tensor | None
    other: tuple[Tensor, Tensor] | None
    scale: Scale | None

    @property
    def plain(self) -> Tensor:
        """The weights as they are."""
        return self.weights[SHARES.index(1.0)]


def softmaxes_of(attention: Attention) -> list[Seen]:
    """The softmaxes between the scores of an attention and its weights, in order."""
    return [each for each in attention.path if each.last in SOFTMAXES]


def observations(run: Run, rerun: Callable[..., Run]) -> list[Observation | None]:
    """What was observed of each attention of a run; None: its scores and its weights could not be laid side by side.

    rerun: repeats the run with stand-ins, or with other inputs.
    """
    made = [plain_scores(each) for each in attentions(run)]
    first = [_scored(each) for each in made]
    if all(each is None for each in first):
        return [None] * len(made)
    products = [one for each in made if not each.fused for one in (*filter(is_scores, each.path), _scored(each)) if one]
    runs = [run if share == 1 else rerun(_times_all(products, share)) for share in SHARES]
    softmaxes = [one for each in made for one in softmaxes_of(each)]
    doubled, seeded = rerun(_times_all(softmaxes, 2.0)) if softmaxes else run, rerun(seed=1)
    measured = scales(run, seeded) if seeded.record.failure is None else []
    known = {each.attention.context.at: each for each in measured}
    every = [[] if each.record.failure is not None else attentions(each) for each in (*runs, doubled, seeded)]
    out: list[Observation | None] = []
    for at, (attention, entry) in enumerate(zip(made, first, strict=True)):
        others = [each[at] if len(each) == len(made) else None for each in every]
        scale = known.get(attention.context.at)
        out.append(None if entry is None else _observed(run, attention, entry, others, scale))
    return out


def _observed(
    run: Run, attention: Attention, entry: Seen, others: list[Attention | None], scale: Scale | None
) -> Observation | None:
    scores, heads = _beside(attention, entry) or (None, None)
    weights = [None if each is None else weights_of(each) for each in others]
    held = [each.detach().double() for each in weights if each is not None and scores is not None
            and each.shape == scores.shape]  # fmt: skip
    if scores is None or heads is None or len(held) < len(others):
        return None
    *runs, _, last = [each for each in others if each is not None]
    steps = [[_made(one) for one in softmaxes_of(each)] for each in runs]
    again = _scored(other := plain_scores(last))
    laid = None if again is None else _beside(other, again)
    return Observation(
        run, attention, scores, heads, tuple(held[: len(SHARES)]),
        tuple(zip(*steps, strict=False)), held[len(SHARES)], None if laid is None else (laid[0], held[-1]), scale,
    )  # fmt: skip


def _made(entry: Seen) -> Tensor:
    value = entry.operation.outputs[0].value
    return torch.empty(0) if value is None else value.detach().double()


def _scored(attention: Attention) -> Seen | None:
    """What makes the scores: the product of queries and keys, or where they are added, the last that learned weights
    make of the sum before the softmax.
    """
    if attention.fused or attention.scores is not None:
        return attention.scores
    softmaxes = softmaxes_of(attention)
    stop = softmaxes[0].at if softmaxes else attention.context.at
    return next((each for each in reversed(attention.path) if each.at < stop and each.joint is not None), None)


def _times_all(entries: list[Seen], share: float) -> dict[Site, Callable[..., Any]]:
    return {site_of(each.operation): partial(_times, each.function, share) for each in entries}


def _times(function: Callable[..., Any], share: float, *args: Any, **options: Any) -> Any:
    return function(*args, **options) * share


def _beside(attention: Attention, entry: Seen) -> tuple[Tensor, Tensor] | None:
    """The scores laid out as the weights are, and the head of each row; None: they cannot be."""
    joint, made, value = attention.context.joint, entry.made[0], entry.operation.outputs[0].value
    left = (first := operand_marks(attention.context)[0]) is not None and first.kind == "pair"
    marks = operand_marks(attention.context)[0 if left else 1]
    if joint is None or marks is None or made is None or value is None or made.kind != "pair":
        return None
    wanted = _numbers(marks)
    there = _placed(value.detach().double(), made, wanted)
    if there is None:
        return None
    return joint.flat(there, left=left), joint.flat(marks.arrays["h"], left=left)[..., :1]


def _numbers(marks: Marks) -> Tensor:
    return torch.stack([marks.arrays[each] for each in "xyh"], dim=-1)


def _placed(value: Tensor, made: Marks, wanted: Tensor) -> Tensor | None:
    """Each score at the entry of the weights that is of the same query, key and head."""
    have = _numbers(made)
    if have.shape == wanted.shape and torch.equal(have, wanted):
        return value
    keys, ranks = torch.unique(torch.cat([have.flatten(0, -2), wanted.flatten(0, -2)]), dim=0, return_inverse=True)
    if bool((keys[ranks] < 0).any()):
        # of what is of no one query and key only the place says which it is
        return value if value.shape == wanted.shape[:-1] else None
    mine, theirs = ranks[: value.numel()], ranks[value.numel() :]
    found = torch.full((len(keys),), float("nan"), dtype=value.dtype)
    found[mine] = value.flatten()
    if not torch.equal(found[mine], value.flatten()) or bool(found[theirs].isnan().any()):
        return value if value.shape == wanted.shape[:-1] else None
    return found[theirs].reshape(wanted.shape[:-1])
