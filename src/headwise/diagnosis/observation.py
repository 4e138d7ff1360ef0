"""Observation: scores and weights of each attention of a run side by side, and how weights answer to other scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from headwise.dataflow import AttentionOps, MarkedOp, Run, attentions, is_scores
from headwise.diagnosis.scale_factors import Scale, scales
from headwise.diagnosis.score_layout import beside, laid
from headwise.diagnosis.score_path import plain_scores
from headwise.recording import Site

__all__ = ["SHARES", "Observation", "changed", "observed", "softmaxes_of"]

# by what the scores are multiplied besides, to see how the weights answer: evenly about 1
SHARES = (0.5, 1.0, 1.5)
SOFTMAXES = frozenset({"softmax", "_softmax"})
POOLS = frozenset({"max", "amax", "mean", "sum", "logsumexp"})
# masks hide with at most this
HIDDEN = -1e4


@dataclass(frozen=True)
class Observation:
    """One attention of a run. scores: what it makes of queries and keys before any scale, laid out as its weights are,
    and weights: with the scores multiplied by each of `SHARES`; all (problems, queries, keys). heads: the number of the
    head of each row, (problems, queries, 1). softmaxes: what each softmax gave, for each of `SHARES`. doubled: the
    weights where each softmax gives twice as much; fixed: where scores are larger, and each softmax gives what it gave.
    other: scores and weights for other inputs. scale: None: not known. rerun, products: what repeats the run, and what
    makes its scores.
    """

    run: Run
    attention: AttentionOps
    scores: Tensor
    heads: Tensor
    weights: tuple[Tensor, ...]
    softmaxes: tuple[tuple[Tensor, ...], ...]
    doubled: Tensor
    fixed: Tensor
    other: tuple[Tensor, Tensor] | None
    scale: Scale | None
    rerun: Callable[..., Run]
    products: tuple[MarkedOp, ...]

    @cached_property
    def shifted(self) -> tuple[tuple[Tensor, ...], ...]:
        """What each softmax gives where numbers are taken from the scores, and where they are added to them; empty:
        such a run fails.
        """
        runs = [self.rerun(changed(self.run, _plus(self.products, sign))) for sign in (-1.0, 1.0)]
        if any(run.failure is not None for run in runs):
            return ()
        attentions_of = [attentions(run) for run in runs]
        at = next(n for n, each in enumerate(attentions(self.run)) if each.context.at == self.attention.context.at)
        if any(at >= len(attention) for attention in attentions_of):
            return ()
        return tuple(
            zip(
                *[[_made(entry) for entry in softmaxes_of(plain_scores(attention[at]))] for attention in attentions_of],
                strict=False,
            )
        )

    @cached_property
    def emptied(self) -> Tensor | None:
        """The weights where each softmax gives 0, laid out as `scores`; None: such a run fails."""
        run = self.rerun(changed(self.run, _times(softmaxes_of(self.attention), 0.0)))
        at = next(n for n, each in enumerate(attentions(self.run)) if each.context.at == self.attention.context.at)
        attentions_of = [] if run.failure is not None else attentions(run)
        weights = plain_scores(attentions_of[at]).weights if at < len(attentions_of) else None
        return None if weights is None or weights.shape != self.scores.shape else weights.detach().double()

    @cached_property
    def hidden_rows(self) -> Tensor | None:
        """Which queries have no key that is not hidden, by what their softmax takes, (problems, queries, 1); None: no
        softmax shows it.
        """
        for entry in softmaxes_of(self.attention):
            there = _taken(self.attention, entry)
            if there is not None and there.shape == self.scores.shape:
                return there.amax(dim=-1, keepdim=True) <= HIDDEN
        return None

    def taken_by(self, place: int) -> tuple[Tensor, Tensor] | None:
        """What an operation of the path takes with the scores as they are and with the largest of `SHARES` times them,
        laid out as `scores`; None: such a run fails, or what it takes is not known.
        """
        run = self.rerun(changed(self.run, _times(self.products, SHARES[-1])))
        at = next(n for n, each in enumerate(attentions(self.run)) if each.context.at == self.attention.context.at)
        every = [] if run.failure is not None else attentions(run)
        paths = [self.attention.path, plain_scores(every[at]).path if at < len(every) else []]
        if any(place >= len(path) for path in paths):
            return None
        out = [_taken(self.attention, path[place]) for path in paths]
        return None if out[0] is None or out[1] is None or out[0].shape != self.scores.shape else (out[0], out[1])

    @property
    def is_pooled(self) -> bool:
        """Whether the scores are those of all queries in one for each key."""
        return self.products[0] is _pooled(self.attention)

    @property
    def plain(self) -> Tensor:
        """The weights as they are."""
        return self.weights[SHARES.index(1.0)]


def softmaxes_of(attention: AttentionOps) -> list[MarkedOp]:
    """The softmaxes between the scores of an attention and its weights, in order."""
    return [entry for entry in attention.path if entry.last in SOFTMAXES]


def observed(run: Run, rerun: Callable[..., Run], at: int) -> Observation | None:
    """What was observed of one attention of a run; None: its scores and weights could not be laid side by side.

    rerun: repeats the run with stand-ins, or with other inputs. at: its place among the attentions of the run.
    """
    attention = plain_scores(attentions(run)[at])
    scored = _scored_here(run, attention)
    entry = next((each for each in scored if beside(attention, each)), None)
    if entry is None:
        return None
    products, softmaxes = scored, softmaxes_of(attention)
    runs = [run if share == 1 else rerun(changed(run, _times(products, share))) for share in SHARES]
    seeded = rerun(seed=1)
    doubled = rerun(changed(run, _times(softmaxes, 2.0))) if softmaxes else run
    fixed = rerun(changed(run, [*_times(products, SHARES[-1]), *_kept(softmaxes)])) if softmaxes else run
    measured = scales(run, seeded) if seeded.failure is None else []
    scale = next((each for each in measured if each.attention.context.at == attention.context.at), None)
    every = [[] if each.failure is not None else attentions(each) for each in (*runs, doubled, fixed, seeded)]
    others = [each[at] for each in every if len(each) == len(every[SHARES.index(1.0)])]
    if len(others) < len(every):
        return None
    return _observed(run, attention, entry, others, scale, rerun, tuple(products))


Changes = list[tuple[MarkedOp, Callable[[Any], Any]]]


def changed(run: Run, changes: Changes) -> dict[Site, Callable[..., Any]]:
    """Stand-ins, good for one run, that change what operations give, and not what their lines give at other turns."""
    out: dict[Site, _Changed] = {}
    for entry, change in changes:
        site = entry.site
        turns = [op.at for op in run.seen if op.site == site]
        known = out.setdefault(site, _Changed(entry.function, {}, len(turns)))
        known.changes[turns.index(entry.at)] = change
    return dict(out)


@dataclass(eq=False)
class _Changed:
    """Calls a function, and changes what it gives at some of its turns. count: how many turns there are in one call of
    the target, before which another call may have come.
    """

    function: Callable[..., Any]
    changes: dict[int, Callable[[Any], Any]]
    count: int
    calls: int = 0

    def __call__(self, *args: Any, **options: Any) -> Any:
        output, change = self.function(*args, **options), self.changes.get(self.calls % self.count)
        self.calls += 1
        return output if change is None else change(output)


def _times(entries: Sequence[MarkedOp], share: float) -> Changes:
    return [(entry, partial(_shared, share)) for entry in entries]


def _shared(share: float, output: Any) -> Any:
    """What an operation gives, times a number; of several results, as of a maximum and its places, the first."""
    return type(output)((output[0] * share, *output[1:])) if isinstance(output, tuple) else output * share


def _plus(entries: Sequence[MarkedOp], sign: float) -> Changes:
    """Each gives, beside what it gives, numbers that are as large and follow no order of its own."""

    def moved(output: Tensor) -> Tensor:
        wave = (torch.arange(output.numel(), dtype=output.dtype) ** 2).cos().reshape(output.shape)
        return output + sign * output.detach().abs().nan_to_num(posinf=0.0).max() * wave

    return [(entry, moved) for entry in entries]


def _kept(entries: Sequence[MarkedOp]) -> Changes:
    """Each gives what it gave before, whatever it takes."""
    values = [(entry, entry.outputs[0].value) for entry in entries]
    return [(each, partial(_instead, value)) for each, value in values if value is not None]


def _instead(value: Tensor, output: Tensor) -> Tensor:
    return value.to(output.dtype) if value.shape == output.shape else output


def _observed(
    run: Run, attention: AttentionOps, entry: MarkedOp, others: list[AttentionOps], scale: Scale | None,
    rerun: Callable[..., Run], products: tuple[MarkedOp, ...],
) -> Observation | None:  # fmt: skip
    scores, heads = beside(attention, entry) or (None, None)
    weights = [values.detach().double() for other in others if (values := other.weights) is not None
            and scores is not None and values.shape == scores.shape]  # fmt: skip
    if scores is None or heads is None or len(weights) < len(others):
        return None
    *runs, _, _, last = others
    steps = [[_made(entry) for entry in softmaxes_of(each)] for each in runs]
    plain = plain_scores(last)
    there = next((laid_out for entry in _scored(plain) if (laid_out := beside(plain, entry))), None)
    return Observation(
        run, attention, scores, heads, tuple(weights[: len(SHARES)]),
        tuple(zip(*steps, strict=False)), weights[len(SHARES)], weights[len(SHARES) + 1],
        None if there is None else (there[0], weights[-1]), scale, rerun, products,
    )  # fmt: skip


def _taken(attention: AttentionOps, entry: MarkedOp) -> Tensor | None:
    value, marks = entry.inputs[0].value, entry.given[0]
    there = None if value is None or marks is None else laid(attention, value, marks)
    return None if there is None else there[0]


def _made(entry: MarkedOp) -> Tensor:
    value = entry.outputs[0].value
    return torch.empty(0) if value is None else value.detach().double()


def _scored_here(run: Run, attention: AttentionOps) -> list[MarkedOp]:
    """What may make the scores, without those of layers below, to which the own ones are added: with these changed,
    what queries and keys are made of would change too.
    """
    scored = _scored(attention)
    last = max((entry.at for entry in scored), default=-1)
    below = {entry.at for lower in attentions(run) if lower.context.at < last for entry in lower.path}
    return [entry for entry in scored if entry.at not in below]


def _scored(attention: AttentionOps) -> list[MarkedOp]:
    """What may make the scores: the products of queries and keys, the likeliest first, or where they are added, the
    last that learned weights make of the sum before the softmax, or the sum itself.
    """
    if attention.fused:
        return []
    if (pooled := _pooled(attention)) is not None:
        return [pooled]
    if attention.scores is not None:
        return [
            attention.scores,
            *(entry for entry in attention.path if entry is not attention.scores and is_scores(entry)),
        ]
    softmaxes = softmaxes_of(attention)
    stop = softmaxes[0].at if softmaxes else attention.context.at
    before = [entry for entry in reversed(attention.path) if entry.at < stop]
    # where nothing weighs the sum, it is the scores itself, after what bends it, and before what hides keys
    return [entry for entry in before if entry.joint is not None][:1] or [each for each in before if not _hides(each)][
        :1
    ]


def _pooled(attention: AttentionOps) -> MarkedOp | None:
    """What gives each key one score of those of all queries, as the largest (Seo et al. 2017, arXiv:1611.01603, section
    2.4); None: nothing does.
    """
    softmaxes = softmaxes_of(attention)
    for entry in attention.path:
        if softmaxes and entry.at < softmaxes[0].at and entry.last in POOLS and entry.pair is not None:
            looks = entry.pair.arrays[attention.looks]
            if bool((looks == -1).all()) and tuple(entry.inputs[0].shape) != tuple(looks.shape):
                return entry
    return None


def _hides(entry: MarkedOp) -> bool:
    """Whether an operation gives scores with those of hidden keys among them."""
    value = entry.operation.outputs[0].value if entry.operation.outputs else None
    return value is None or not value.is_floating_point() or bool((value <= HIDDEN).any())
