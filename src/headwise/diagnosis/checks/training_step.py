"""Training step: whether two training steps run in train mode, and whether they reach every weight."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from headwise.calls import Plan
from headwise.dataflow import MarkedOp, ProvenanceTracker, Run, arguments, default_dtype
from headwise.diagnosis.checks.backward import broken_backward
from headwise.diagnosis.checks.crashes import crash_suspect
from headwise.diagnosis.checks.dropout import dropping, with_dropout
from headwise.diagnosis.checks.gradients import is_for_inference, without_place
from headwise.diagnosis.checks.parameters import (
    cut_gradients,
    listed,
    unused_parameters,
    without_gradient,
)
from headwise.diagnosis.checks.refusals import is_refusal
from headwise.diagnosis.checks.side_effects import memories
from headwise.diagnosis.checks.stated_uses import trains_by_segments
from headwise.diagnosis.coverage import Missed, Tried
from headwise.diagnosis.examination import Examination
from headwise.diagnosis.repair import Repair
from headwise.diagnosis.suspects import Suspect
from headwise.recording import Replacing, Site, is_out_of_memory, record, seeded, tensors
from headwise.source import kept

__all__ = ["step_suspects"]

RATE = 0.01
NEXT = 5
# they have a derivative, and it is 0 everywhere
FLAT = frozenset({"round", "round_", "floor", "floor_", "ceil", "ceil_", "trunc", "fix", "sign", "heaviside"})


def step_suspects(plan: Plan, exam: Examination, rerun: Callable[..., Run]) -> tuple[list[Suspect], Tried]:
    """What goes wrong in train mode only, or in the second step of a training; and what was tried."""
    there = without_place(with_dropout(plan), rerun)
    if isinstance(plan.target, type) and is_for_inference(plan.target):
        return [], Missed("doctor.missed.not_trained")
    trained = rerun(plan=there, more_change=dropping, training=True)
    if trained.failure is not None:
        if is_refusal(trained.failure):
            return [], Missed("doctor.missed.not_trained")
        suspect = crash_suspect(trained, exam)
        if suspect is None and not exam.is_published:
            values = {"error": trained.failure.words}
            suspect = Suspect("training-raises", trained.failure.span, values=values)
        return ([] if suspect is None else [suspect]), True

    def again(stand_ins: dict[Site, Callable[..., Any]]) -> Run:
        return rerun(stand_ins, plan=there, more_change=dropping, gradients=True, training=True)

    run = again({})
    if run.failure is not None:
        # an argument that wants a gradient was changed in place, which is told elsewhere
        return [], Missed("doctor.missed.faults_first")
    lacking, error = without_gradient(run)
    if error:
        return broken_backward(run, error, again), True
    unused = unused_parameters(run, lacking)
    cut = [name for name in lacking if name not in unused]
    if cut:
        suspects = cut_gradients(run, cut, again)
        if suspects:
            return suspects, True
    suspects = _flat_gradients(run, again)
    if suspects or not memories(run):
        return suspects or second_step(run, exam), True
    # what is kept for decoding is not meant for training
    severity = "" if trains_by_segments(run.plan.target) else "note"
    return [replace(each, severity=severity) for each in second_step(run, exam)], True


def _flat_gradients(run: Run, rerun: Callable[[dict[Site, Callable[..., Any]]], Run]) -> list[Suspect]:
    """A weight whose gradient is 0 in every entry, and the operation without which it is not.

    run: a run whose backward has been done.
    """
    zero = _zero(run)
    if not zero:
        return []
    for entry in run.seen:
        if entry.last not in FLAT or not entry.is_marked:
            continue
        stand_ins: dict[Site, Callable[..., Any]] = {entry.site: lambda *args, **_: args[0]}
        repeated = rerun(stand_ins)
        if repeated.failure is None and not without_gradient(repeated)[1] and set(_zero(repeated)) < set(zero):
            values = {"name": listed(zero)}
            return [Suspect("gradient-zero", entry.span, Repair(stand_ins), values=values)]
    return []


def _zero(run: Run) -> list[str]:
    return [
        name
        for name, parameter in run.target.named_parameters()
        if parameter.grad is not None
        and parameter.ndim > 1
        and parameter.requires_grad
        and not bool(parameter.grad.any())
    ]


def second_step(run: Run, exam: Examination) -> list[Suspect]:
    """What is still there from the first step of a training and spoils the second.

    run: a run in train mode whose backward has been done.
    """
    target = run.target
    if not isinstance(run.plan.target, type) or not isinstance(target, nn.Module):
        # an object is the person's own, and keeps its weights
        return []
    if run.output is None or not run.output.requires_grad:
        return []
    with torch.no_grad():
        for parameter in target.parameters():
            if parameter.grad is not None:
                parameter.sub_(parameter.grad, alpha=RATE)
                parameter.grad = None
    held = [(module, *item) for module in target.modules() for item in vars(module).items()]
    tracker = ProvenanceTracker({}, {})
    with default_dtype(exam.dtype), Replacing(exam.stand_ins, exam.user_files), seeded(NEXT):
        args, options = arguments(run.plan, run.sizes, NEXT, exam.dtype)
        second = record(
            lambda: target(*args, **options),
            user_files=exam.user_files,
            values=True,
            in_steps=True,
            observe=tracker.observe,
        )
    if second.failure is not None and is_out_of_memory(second.failure.error):
        return []
    if second.failure is not None:
        values = {"error": second.failure.words}
        return [Suspect("second-step-raises", second.failure.span, values=values)]
    output = next((tensor for tensor in tensors(second.result) if tensor.requires_grad), None)
    if output is None:
        return []
    tracker.follow(second.operations)
    try:
        output.sum().backward()
    except RuntimeError as problem:
        if is_out_of_memory(problem):
            return []
        entry, old = next(_left(tracker.ops), (None, None))
        home = next((kept(module, name) for module, name, value in held if value is old), None)
        values = {"error": str(problem).splitlines()[0][:200]}
        return [Suspect("second-step-raises", None if entry is None else entry.span, values=values, home=home)]
    return []


def _left(entries: list[MarkedOp]) -> Iterator[tuple[MarkedOp, Tensor]]:
    """The operations that take what was computed before this run, and what they take."""
    results = {each.number for entry in entries for each in entry.outputs}
    for entry in entries:
        for operand, tensor in zip(entry.inputs, entry.tensors, strict=False):
            if operand.number not in results and tensor.grad_fn is not None:
                yield entry, tensor
