"""Switched flags: what shows only with a flag the other way round than it is by default."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from headwise.calls import Plan
from headwise.diagnosis.checks.dropout import dropping_suspects
from headwise.diagnosis.examination import Examination
from headwise.diagnosis.plans.flags import switched_plans
from headwise.diagnosis.repair_loop import examined
from headwise.diagnosis.suspects import Suspect

__all__ = ["switched"]

Prove = Callable[[Examination, Sequence[Suspect]], None]


def switched(
    target: Any, plans: Sequence[Plan], own: tuple[str, ...], exams: Sequence[Examination], prove: Prove
) -> list[Examination]:
    """Examinations with a flag turned, where all that is wrong is wrong whatever the flag is for.

    exams: of a target as it is by default; where these find a fault, no flag is turned.
    """
    found = [each for exam in exams for each in exam.suspects if each.severity == "fault"]
    out: list[Examination] = []
    if found or not any(exam.is_understood for exam in exams):
        return out
    budget = exams[-1].held.budget
    for plan, kinds, chosen in switched_plans(plans, target, own):
        if budget.is_over:
            break
        exam = examined(plan, own=own, held=exams[-1].held.again())
        laws = exam.held.all("dropout", dropping_suspects, exam.free, exam.rerun) if not exam.suspects else []
        for each in laws:
            exam.found(each)
        faults = [each for each in exam.suspects if each.severity == "fault"]
        if faults and all(each.general in kinds for each in faults):
            exam.held("proof", None, prove, exam, laws)
            exam.suspects = [
                replace(each, severity="note") if each.general in chosen else each for each in exam.suspects
            ]
            out.append(exam)
    return out
