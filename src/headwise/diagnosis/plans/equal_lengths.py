"""Equal lengths: whether code that fails with more keys than queries attends where there are as many of both."""

from __future__ import annotations

from dataclasses import replace

import torch

from headwise.calls import Plan, alike
from headwise.dataflow import Manner, attentions, run
from headwise.diagnosis.checks.head_layout import breaches
from headwise.diagnosis.checks.refusals import is_refusal
from headwise.diagnosis.coverage import Missed
from headwise.diagnosis.examination import Examination
from headwise.diagnosis.plans.small_sizes import small
from headwise.diagnosis.plans.user_arguments import as_json
from headwise.recording import Operation

__all__ = ["fails_apart"]


def fails_apart(exam: Examination) -> Missed | None:
    """That a call fails by its keys' length alone, at a line that does not refuse it; None: it does not, or queries and
    keys do not meet with as many of both either.
    """
    plan, failure = exam.plan, exam.run().record.failure
    if failure is None or failure.operation is None or failure.span is None or is_refusal(failure):
        return None
    if _has_triangle(failure.operation):
        # it hides later tokens by a triangle of as many keys as queries: it attends to its own tokens
        return None
    if plan.mask or not {"L", "S"} <= {each.name for each in plan.symbols}:
        return None
    level = _level(plan)
    done = run(level, Manner(dtype=exam.dtype), sizes=small(level), own=exam.own, change=exam.change)
    found = attentions(done)
    if done.record.failure is not None or not found or any(breaches(each) for each in found):
        return None
    error = f"{type(failure.error).__name__}: {failure.error}".splitlines()[0].rstrip(".")
    call = as_json({name: alike(value) for name, value in plan.call.items()})
    return Missed("doctor.missed.fails_apart", {"line": failure.span.line, "error": error, "call": call})


def _has_triangle(operation: Operation) -> bool:
    """Whether an operation takes a square with one value above its diagonal, and another one below."""
    for seen in operation.inputs:
        value, shape = seen.value, seen.shape
        if value is None or len(shape) < 2 or shape[-1] != shape[-2] or shape[-1] < 2 or not value.numel():
            continue
        square = value.reshape(-1, *shape[-2:])[0]
        above = square[torch.ones(shape[-2:], dtype=torch.bool).triu(1)]
        below = square[torch.ones(shape[-2:], dtype=torch.bool).tril(-1)]
        if bool((above == above[0]).all()) and bool((below == below[0]).all()) and bool(above[0] != below[0]):
            return True
    return False


def _level(plan: Plan) -> Plan:
    bound = tuple(replace(each, equals="L") if each.name == "S" else each for each in plan.symbols)
    return replace(plan, symbols=bound)
