"""Laws: what holds of any attention, whatever its numbers: its inputs, its parameters, its training, its dropout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from headwise.diagnosis.anatomy import attentions
from headwise.diagnosis.dropping import dropping_suspects
from headwise.diagnosis.edges import edge_suspects
from headwise.diagnosis.examining import Examination
from headwise.diagnosis.inputs import ignored_inputs, shared_projections
from headwise.diagnosis.parameters import (
    broken_backward,
    cut_gradients,
    cut_paths,
    unregistered,
    unused_parameters,
    unused_suspects,
    without_gradient,
)
from headwise.diagnosis.replacing import Site
from headwise.diagnosis.rotating import rotating_suspects
from headwise.diagnosis.running import Run
from headwise.diagnosis.suspects import Suspect
from headwise.recording.calls import Plan

__all__ = ["law_suspects"]

Change = Callable[[Any, dict[str, Any]], None]


def law_suspects(exam: Examination) -> list[Suspect]:
    """What the laws find in a plan whose values are right, or have been put right."""

    def rerun(*args: Any, more_change: Change | None = None, **options: Any) -> Run:
        if more_change is not None:
            options["change"] = _both(exam.change, more_change)
        return exam.run(*args, **options)

    done = rerun(plan=exam.free)
    if done.record.failure is not None or not attentions(done):
        return []
    out = ignored_inputs(done, lambda **options: rerun(plan=exam.free, **options))
    out += dropping_suspects(exam.free, rerun)
    out += unregistered(done)
    out += rotating_suspects(lambda **options: rerun(plan=exam.free, **options))
    out += _training(exam.free, exam, rerun)
    if exam.plan.mask and not out:
        out += _training(exam.plan, exam, rerun)
        out += dropping_suspects(exam.plan, rerun)
    if not out:
        out += _leak(done, lambda **options: rerun(plan=exam.free, **options))
    if exam.plan.mask and not exam.is_published:
        out += edge_suspects(exam.plan, rerun)
        exam.examined |= {"empty rows": True, "half": True}
    exam.examined |= {"training": True, "gradients": True, "dropout": True, "samples": True}
    return out


def _both(first: Change | None, second: Change) -> Change:
    def change(target: Any, options: dict[str, Any]) -> None:
        if first is not None:
            first(target, options)
        second(target, options)

    return change


def _training(plan: Plan, exam: Examination, rerun: Callable[..., Run]) -> list[Suspect]:
    """What a backward through one plan shows."""
    done = rerun(plan=plan, gradients=True)
    if done.record.failure is not None:
        return []

    def again(stand_ins: dict[Site, Callable[..., Any]]) -> Run:
        return rerun(stand_ins, plan=plan, gradients=True)

    lacking, error = without_gradient(done)
    if error:
        return broken_backward(done, error, again)
    if not lacking:
        return shared_projections(done, []) or cut_paths(done, again)
    unused = unused_parameters(done, lacking)
    out = shared_projections(done, unused)
    cut = [name for name in lacking if name not in unused]
    if cut:
        out += cut_gradients(done, cut, again)
    if unused and not out and not exam.is_published:
        out += unused_suspects(done, unused)
    return out


def _leak(done: Run, rerun: Callable[..., Run]) -> list[Suspect]:
    """Whether one sample changes another: the first operation in which it does."""
    known = {name: marks for name, marks in done.known.items() if done.named[name].is_floating_point()}
    if done.output is None or not known:
        return []
    samples = {name: _samples(marks.arrays["t"]) for name, marks in known.items()}
    if any(each is None for each in samples.values()) or done.output.ndim == 0:
        return []
    # what has no axis of samples is every sample's
    samples = {name: own for name, own in samples.items() if own is not None and bool(own.any())}

    def change(_: Any, options: dict[str, Any]) -> None:
        for name, own in samples.items():
            value = options.get(name)
            if isinstance(value, Tensor) and own is not None:
                options[name] = torch.where(own == 0, value * 1.3 + 0.7, value)

    then = rerun(more_change=change)
    marks = done.output_marks
    if then.output is None or marks is None or marks.kind != "token" or then.output.shape != done.output.shape:
        return []
    own = _samples(marks.arrays["t"])
    if own is None:
        return []
    differs = (then.output - done.output).abs().nan_to_num() > 1e-9
    if not bool((differs & (own != 0)).any()):
        return []
    for a, b in zip(done.seen, then.seen, strict=False):
        for x, y, m in zip(a.operation.outputs, b.operation.outputs, a.made, strict=False):
            if m is None or m.kind != "token" or x.value is None or y.value is None:
                continue
            place = _samples(m.arrays["t"])
            if place is not None and bool((((x.value - y.value).abs().nan_to_num() > 1e-9) & (place != 0)).any()):
                return [Suspect("sample-leak", a.operation.span, proved=True)]
    return [Suspect("sample-leak", attentions(done)[-1].context.operation.span, proved=True)]


def _samples(t: Tensor) -> Tensor | None:
    from headwise.diagnosis.marks import sample_of

    return None if bool((t < 0).any()) else sample_of(t)
