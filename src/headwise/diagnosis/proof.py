"""Proof: a run repeated with what was found put right, against what its attention should give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any

import torch
from torch import Tensor

from headwise.dataflow import AttentionOps, Run, attentions, find_pattern, is_movement
from headwise.diagnosis.checks.batch_leak import is_leaking
from headwise.diagnosis.checks.causal_intent import wants_causal
from headwise.diagnosis.checks.visible_pairs import pattern_of, visible_pairs
from headwise.diagnosis.distance import distance
from headwise.diagnosis.examination import Examination
from headwise.diagnosis.reference_output import Intent, contexts, given_instead
from headwise.diagnosis.scale_factors import Scale, scales
from headwise.diagnosis.suspects import Suspect

__all__ = ["Goal", "goal_of", "proved"]

# relative to the largest entry; what a person turns into float32 on the way stays that exact
NEAR, NEAR_SINGLE = 2e-5, 2e-4
# a number added to scores that is no bias but hides
HIDDEN = -1e3
KEPT = frozenset({"softmax", "_softmax", "masked_fill", "masked_fill_", "where", "dropout", "dropout_", "__setitem__",
                  "to", "float", "double", "type_as", "type", "clone", "contiguous", "nan_to_num"})  # fmt: skip


@dataclass(frozen=True)
class Goal:
    """What the output should be. output: None: it cannot be built, or the run with all put right is not it although
    its scores are unusual. error: how far the output is from it when all is put right.
    """

    output: Tensor | None
    error: float = float("inf")
    is_plain: bool = False

    def is_met_by(self, output: Tensor | None) -> bool:
        """Whether an output is what it should be."""
        if self.output is None or output is None:
            return False
        return distance(output, self.output) <= near(self.output)


def near(wanted: Tensor) -> float:
    """How far two outputs may be apart that are said to be one."""
    share = NEAR if wanted.dtype == torch.float64 else NEAR_SINGLE
    largest = float(wanted.detach().nan_to_num(posinf=0.0, neginf=0.0).abs().max()) if wanted.numel() else 0.0
    return share * max(largest, 1e-3)


def goal_of(exam: Examination) -> Goal:
    """What the output of a plan should be, all that was found put right. exam: its examination."""
    final = exam.run()
    if final.failure is not None or final.output is None or not attentions(final):
        return Goal(None)
    free, second = exam.run(plan=exam.free), exam.run(plan=exam.free, seed=1)
    if free.failure is not None or len(attentions(free)) != len(attentions(final)):
        return Goal(None)
    measured = scales(free, second) if second.failure is None else []
    is_plain = _is_plain(final, free, measured) and not exam.is_published
    # a mask that is made of token numbers hides other keys from each sample
    is_plain = is_plain and not any(map(_differs_by_sample, attentions(free)))
    allowed = [_seen(free, attention) for attention in attentions(free)]
    before = [_before(each) for each in measured] if len(measured) == len(allowed) else [(1.0, None)] * len(allowed)
    wanted = _output(exam, final, [Intent(a, b and b / c) for a, (c, b) in zip(allowed, before, strict=True)])
    if wanted is None:
        return Goal(None)
    error = distance(final.output, wanted)
    if error <= near(wanted):
        return Goal(wanted, error, is_plain)
    if len(measured) == len(allowed) and not any(suspect.fault.family == "scale" for suspect in exam.suspects):
        # a scale of its own that is no fault
        own_scales = [Intent(a, each.total / c) for a, each, (c, _) in zip(allowed, measured, before, strict=True)]
        own_output = _output(exam, final, own_scales)
        if own_output is not None and distance(final.output, own_output) <= near(own_output):
            return Goal(own_output, distance(final.output, own_output), is_plain)
    return Goal(wanted if is_plain else None, error, is_plain)


def _before(scale: Scale) -> tuple[float, float | None]:
    """By what queries and keys were multiplied before they met, and the scale that is wanted; None: nothing was."""
    attention = scale.attention
    met = [attention.context, *attention.path]
    factors = [factor.value for factor in scale.factors if all(factor.entry is not op for op in met)]
    return (prod(factors), scale.width**-0.5) if factors else (1.0, None)


def _output(exam: Examination, final: Run, intents: Sequence[Intent]) -> Tensor | None:
    """What the person's code gives where each attention gives what it should."""
    results = contexts(final, intents)
    if results is None:
        return None
    run = exam.run(given_instead(results))
    return None if run.failure is not None else run.output


def _seen(free: Run, attention: AttentionOps) -> Tensor | None:
    """Who sees whom by their places, where that is a triangle; None: all see all."""
    pattern = pattern_of(attention)
    if pattern is None:
        return None
    rows, columns = pattern.shape
    i, j = torch.arange(rows)[:, None], torch.arange(columns)[None, :]
    is_known = pattern.any(dim=-1)
    for triangle in (j <= i, j <= i + columns - rows):
        if bool((pattern == triangle)[is_known].all()) and not bool(pattern.all()):
            return triangle
    return j <= i + max(0, columns - rows) if wants_causal(free) else None


def _differs_by_sample(attention: AttentionOps) -> bool:
    """Whether it is known who sees whom, and not the same in all samples and heads."""
    sight = find_pattern(attention)
    return sight is not None and visible_pairs(sight) is None


def _is_plain(final: Run, free: Run, measured: Sequence[Scale]) -> bool:
    """Whether scores are multiplied, hidden and shared out by a softmax, and nothing else is done to them."""
    if any(each.bent or each.floored is not None for each in measured):
        return False
    factors = {factor.entry.span for scale in measured for factor in scale.factors}
    for run in (final, free):
        for attention in attentions(run):
            if attention.fused:
                continue
            if attention.scores is None or attention.softmax is None:
                return False
            for entry in attention.path:
                operation = entry.operation
                if entry is attention.scores or entry.last in KEPT or is_movement(operation.function):
                    continue
                if operation.span not in factors and not _hides(entry):
                    return False
    return True


def _hides(entry: Any) -> bool:
    """Whether all that an operation adds to scores is nothing, or hides a key."""
    if entry.name not in ("+", "+=", "add", "add_", "-", "-="):
        return False
    numbers = [tensor.value.double() for tensor in entry.unmarked_inputs if tensor.value is not None]
    return bool(numbers) and all(bool(((number == 0) | (number.abs() > -HIDDEN)).all()) for number in numbers)


def proved(
    exam: Examination, goal: Goal, broken: set[tuple[str, object]], laws: Sequence[Suspect] = ()
) -> list[Suspect]:
    """The suspects of an examination with what was measured. broken: what is still found when all is put right; laws:
    those among them that a law found, which may leave the output as it is.
    """
    return [
        _proved(exam, suspect, goal, broken, is_law=any(suspect is law for law in laws)) for suspect in exam.suspects
    ]


def _proved(
    exam: Examination, suspect: Suspect, goal: Goal, broken: set[tuple[str, object]], *, is_law: bool
) -> Suspect:
    if not suspect.repair.is_runnable and (suspect.proved or suspect.severity != "fault"):
        # what was measured where it was found, or is only told, is as it was seen
        return suspect
    if not suspect.repair.is_runnable:
        is_seen = suspect.fault.needs_proof == "samples" and not suspect.guess and _is_leaking(exam)
        return replace(
            suspect, proved=is_seen, values={**suspect.values, "how": "samples"}, evidence="samples" * is_seen
        )
    final = exam.run()
    if final.failure is not None or final.output is None or (suspect.kind, suspect.span) in broken:
        return replace(suspect, proved=False)
    met = goal.is_met_by(final.output)
    if goal.output is not None and not met:
        return replace(suspect, proved=False)
    there = exam.without(suspect).run()
    values = {**suspect.values, "after": _number(goal.error) if met else "", "how": "ideal" if met else "laws"}
    if there.failure is not None:
        raised = type(there.failure.error).__name__
        return replace(suspect, proved=True, evidence=raised, values={**values, "how": f"raised_{values['how']}"})
    if not met and bool(final.output.isnan().any()) and not _has_nan(there.output):
        # what leaves no number where there was one puts nothing right
        return replace(suspect, proved=False)
    wanted = goal.output if met and goal.output is not None else final.output
    error = distance(there.output, wanted)
    if error > near(wanted):
        return replace(suspect, proved=True, evidence=_number(error), values=values)
    if is_law:
        return replace(suspect, proved=True, evidence="law", values={**values, "how": "law"})
    return replace(suspect, proved=False)


def _has_nan(output: Tensor | None) -> bool:
    return output is not None and bool(output.isnan().any())


def _is_leaking(exam: Examination) -> bool:
    """Whether one sample is seen to change another's result."""
    run = exam.run(plan=exam.free)
    return run.failure is None and is_leaking(run, partial(exam.rerun, plan=exam.free))


def _number(value: float) -> str:
    """A difference as it is said: what is no more than rounding is 0."""
    return "0" if value < 1e-9 else f"{value:.4g}"
