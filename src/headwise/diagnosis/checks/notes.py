"""Notes: what is so on purpose and no fault, but worth a line to whoever reads the code: only ever a note."""

from __future__ import annotations

from collections.abc import Mapping
from math import isclose
from typing import Any

from headwise.dataflow import Run, attentions
from headwise.diagnosis.checks.unscaled import is_bucketed
from headwise.diagnosis.examination import Examination
from headwise.diagnosis.scale_factors import scales
from headwise.diagnosis.suspects import Suspect
from headwise.source import meaning_of

__all__ = ["unusual_notes"]

NEAR = 1e-3
# what makes weights of scores, and does not let them sum to 1
SINGLE = frozenset({"sigmoid", "sigmoid_", "relu", "relu_", "softplus", "elu", "gelu", "tanh", "normalize"})


def unusual_notes(exam: Examination, run: Run) -> list[Suspect]:
    """Notes on the scale, the weights and the mask of a plan. exam: its examination; run: a run with no mask."""
    second = exam.run(plan=exam.free, seed=1)
    out = [] if second.failure is not None else _scale(run, second)
    return [*out, *_weights(run), *_mask(exam)]


def _scale(first: Run, second: Run) -> list[Suspect]:
    """Scores that are not divided by the root of the head width, where a bias is learned or all is divided by it."""
    for scale in scales(first, second):
        scores = scale.attention.scores
        if scores is None or scale.bent or scale.normed or scale.floored is not None or scale.width < 2:
            continue
        if isclose(scale.total, 1.0, rel_tol=NEAR) and is_bucketed(first, scale):
            return [_note("scale-as-t5", scores.span, {})]
        if isclose(scale.total, 1 / scale.width, rel_tol=NEAR):
            span = next((factor.entry.span for factor in scale.factors), scores.span)
            return [_note("scale-as-mup", span, {})]
    return []


def _weights(run: Run) -> list[Suspect]:
    """Weights that no softmax makes."""
    for attention in attentions(run):
        names = {entry.last for entry in attention.path}
        # what bends the features that scores are made of makes no weights of them
        made = max((entry.at for entry in attention.path if entry.joint is not None), default=-1)
        maker = next((each for each in reversed(attention.path) if each.last in SINGLE and each.at > made), None)
        if attention.fused or attention.softmax is not None or maker is None or names & {"exp", "exp_"}:
            continue
        return [_note("softmax-alternative", maker.span, {"name": maker.last.rstrip("_")})]
    return []


def _mask(exam: Examination) -> list[Suspect]:
    """A mask whose True hides, where neither its name nor a word in the file says so."""
    plan = exam.plan
    declared = plan.call.get("_mask")
    if not isinstance(declared, Mapping) or declared["means"] != "blocked" or "pad" in plan.mask:
        return []
    if any(suspect.fault.family == "mask" and suspect.severity == "fault" for suspect in exam.suspects):
        return []
    if meaning_of(exam.user_files, plan.mask, getattr(plan.target, "__name__", type(plan.target).__name__)):
        return []
    run = exam.run()
    mask = run.named.get(plan.mask)
    for entry in run.seen:
        if mask is not None and any(tensor is mask for tensor in entry.tensors):
            return [_note("mask-polarity", entry.span, {"name": plan.mask})]
    return []


def _note(kind: str, span: Any, values: dict[str, object]) -> Suspect:
    return Suspect(kind, span, values=values, proved=True)
