"""Equal lengths: whether code that fails with more keys than queries attends where there are as many of both."""

from __future__ import annotations

from dataclasses import replace

from headwise.diagnosis.checks.layout import breaches
from headwise.diagnosis.checks.refusing import is_refusal
from headwise.diagnosis.examination import Examination
from headwise.diagnosis.following.anatomy import attentions
from headwise.diagnosis.following.running import Manner, run
from headwise.diagnosis.plans.saying import as_json
from headwise.diagnosis.plans.sizing import small
from headwise.diagnosis.tried import Missed
from headwise.recording.calls import Plan, alike

__all__ = ["fails_apart"]


def fails_apart(exam: Examination) -> Missed | None:
    """That a call fails by its keys' length alone, at a line that does not refuse it; None: it does not, or queries and
    keys do not meet with as many of both either.
    """
    plan, failure = exam.plan, exam.run().record.failure
    if failure is None or failure.operation is None or failure.span is None or is_refusal(failure):
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


def _level(plan: Plan) -> Plan:
    bound = tuple(replace(each, equals="L") if each.name == "S" else each for each in plan.symbols)
    return replace(plan, symbols=bound)
