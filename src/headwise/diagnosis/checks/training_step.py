"""Training step: whether two training steps run in train mode, and whether they reach every weight."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from headwise.calls import Plan
from headwise.dataflow import MarkedOp, ProvenanceTracker, Run, arguments, default_dtype
from headwise.diagnosis.checks.crashes import crash_suspect
from headwise.diagnosis.checks.dropout import dropping, with_dropout
from headwise.diagnosis.checks.parameters import (
    broken_backward,
    cut_gradients,
    listed,
    unused_parameters,
    without_gradient,
)
from headwise.diagnosis.checks.refusals import is_refusal
from headwise.diagnosis.checks.side_effects import memories
from headwise.diagnosis.coverage import Missed, Tried
from headwise.diagnosis.suspects import Suspect
from headwise.recording import Replacing, Site, record, site_of, tensors

__all__ = ["step_suspects"]

RATE = 0.01
NEXT = 5
# they have a derivative, and it is 0 everywhere
FLAT = frozenset({"round", "round_", "floor", "floor_", "ceil", "ceil_", "trunc", "fix", "sign", "heaviside"})


def step_suspects(plan: Plan, exam: Any, rerun: Callable[..., Run]) -> tuple[list[Suspect], Tried]:
    """What goes wrong in train mode only, or in the second step of a training; and what was tried."""
    there = with_dropout(plan)
    trained = rerun(plan=there, more_change=dropping, training=True)
    if trained.record.failure is not None:
        if is_refusal(trained.record.failure):
            return [], Missed("doctor.missed.not_trained")
        suspect = crash_suspect(trained, exam)
        if suspect is None and not exam.is_published:
            error = f"{type(trained.record.failure.error).__name__}: {trained.record.failure.error}"
            said = {"error": error.splitlines()[0]}
            suspect = Suspect("training-raises", trained.record.failure.span, said=said)
        return ([] if suspect is None else [suspect]), True

    def again(stand_ins: dict[Site, Callable[..., Any]]) -> Run:
        return rerun(stand_ins, plan=there, more_change=dropping, gradients=True, training=True)

    done = again({})
    if done.record.failure is not None:
        # an argument that wants a gradient was changed in place, which is told elsewhere
        return [], Missed("doctor.missed.faults_first")
    lacking, error = without_gradient(done)
    if error:
        return broken_backward(done, error, again), True
    unused = unused_parameters(done, lacking)
    cut = [name for name in lacking if name not in unused]
    if cut:
        found = cut_gradients(done, cut, again)
        if found:
            return found, True
    found = _flat_gradients(done, again)
    if found or not memories(done):
        return found or second_step(done, exam), True
    # what is kept for decoding is not meant for training
    return [replace(each, severity="note") for each in second_step(done, exam)], True


def _flat_gradients(done: Run, rerun: Callable[[dict[Site, Callable[..., Any]]], Run]) -> list[Suspect]:
    """A weight whose gradient is 0 in every entry, and the operation without which it is not.

    done: a run whose backward has been done.
    """
    zero = _zero(done)
    if not zero:
        return []
    for entry in done.seen:
        if entry.last not in FLAT or not any(marks is not None for marks in entry.given):
            continue
        stand_ins: dict[Site, Callable[..., Any]] = {site_of(entry.operation): lambda *args, **_: args[0]}
        then = rerun(stand_ins)
        if then.record.failure is None and not without_gradient(then)[1] and set(_zero(then)) < set(zero):
            said = {"name": listed(zero)}
            return [Suspect("gradient-zero", entry.operation.span, stand_ins, said=said)]
    return []


def _zero(done: Run) -> list[str]:
    return [
        name
        for name, each in done.target.named_parameters()
        if each.grad is not None and each.ndim > 1 and each.requires_grad and not bool(each.grad.any())
    ]


def second_step(done: Run, exam: Any) -> list[Suspect]:
    """What is still there from the first step of a training and spoils the second.

    done: a run in train mode whose backward has been done.
    """
    target = done.target
    if not isinstance(done.plan.target, type) or not isinstance(target, nn.Module):
        # an object is the person's own, and keeps its weights
        return []
    if done.output is None or not done.output.requires_grad:
        return []
    with torch.no_grad():
        for each in target.parameters():
            if each.grad is not None:
                each.sub_(each.grad, alpha=RATE)
                each.grad = None
    tracker = ProvenanceTracker({}, {})
    with default_dtype(exam.dtype), Replacing(exam.stand_ins, exam.own), torch.random.fork_rng(devices=()):
        torch.default_generator.manual_seed(NEXT)
        args, options = arguments(done.plan, done.sizes, NEXT, exam.dtype)
        second = record(lambda: target(*args, **options), user_files=exam.own, values=True, observe=tracker.observe)
    if second.failure is not None:
        error = f"{type(second.failure.error).__name__}: {second.failure.error}"
        said = {"error": error.splitlines()[0]}
        return [Suspect("second-step-raises", second.failure.span, said=said)]
    output = next((each for each in tensors(second.result) if each.requires_grad), None)
    if output is None:
        return []
    tracker.follow(second.operations)
    try:
        output.sum().backward()
    except RuntimeError as problem:
        old = _left(tracker.ops)
        span = old.operation.span if old is not None else None
        said = {"error": str(problem).splitlines()[0][:200]}
        return [Suspect("second-step-raises", span, said=said)]
    return []


def _left(seen: list[MarkedOp]) -> MarkedOp | None:
    """The first operation that takes what was computed before this run."""
    made = {each.number for entry in seen for each in entry.operation.outputs}
    for entry in seen:
        for known, tensor in zip(entry.operation.inputs, entry.tensors, strict=False):
            if known.number not in made and _is_computed(tensor):
                return entry
    return None


def _is_computed(tensor: Tensor) -> bool:
    return tensor.grad_fn is not None
