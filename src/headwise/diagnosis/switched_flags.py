"""Switched flags: what shows only with a flag the other way round than by default, or with an optional input given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from headwise.calls import Plan
from headwise.diagnosis.checks.crossed_positions import crossed_positions
from headwise.diagnosis.checks.dropout import dropping_suspects
from headwise.diagnosis.checks.side_effects import changed_arguments
from headwise.diagnosis.examination import Examination
from headwise.diagnosis.laws import shown_suspects
from headwise.diagnosis.plans.flags import NUMBERED, switched_plans
from headwise.diagnosis.plans.optional_inputs import filled_plans
from headwise.diagnosis.repair_loop import examined
from headwise.diagnosis.suspects import Suspect

__all__ = ["switched"]

Prove = Callable[[Examination, Sequence[Suspect]], Examination]


def switched(
    target: Any, plans: Sequence[Plan], user_files: tuple[str, ...], exams: Sequence[Examination], prove: Prove
) -> list[Examination]:
    """Examinations with a flag turned, where all that is wrong is wrong whatever the flag is for, and with the optional
    positions given.

    exams: of a target as it is by default; where these find a fault, no flag is turned.
    """
    known_faults = [each for exam in exams for each in exam.suspects if each.severity == "fault"]
    out: list[Examination] = []
    if known_faults or not any(exam.is_understood for exam in exams):
        return out
    budget = exams[-1].checks.budget
    for plan, kinds, chosen in switched_plans(plans, target, user_files):
        if budget.is_over:
            break
        exam = examined(plan, user_files=user_files, checks=exams[-1].checks.again())
        laws = exam.checks.all("dropout", dropping_suspects, exam.free, exam.rerun) if not exam.suspects else []
        if NUMBERED <= kinds and not exam.suspects:
            shown = exam.checks.all("laws", shown_suspects, exam)
            laws += [suspect for suspect in shown if kinds & {suspect.kind, suspect.general}]
        exam = exam.repaired(*laws)
        faults = [each for each in exam.suspects if each.severity == "fault"]
        if faults and all(kinds & {fault.kind, fault.general} for fault in faults):
            exam = exam.checks("proof", exam, prove, exam, laws)
            out.append(
                exam.with_suspects(
                    replace(suspect, severity="note") if suspect.general in chosen else suspect
                    for suspect in exam.suspects
                )
            )
    for plan in filled_plans(plans, user_files):
        exam = examined(plan, user_files=user_files, checks=exams[-1].checks.again())
        laws = exam.checks.all("arguments kept", changed_arguments, exam.run()) if not exam.suspects else []
        laws += exam.checks.all("rotation", crossed_positions, exam.run(), exam.rerun) if not exam.suspects else []
        exam = exam.repaired(*laws)
        if exam.suspects:
            out.append(exam.checks("proof", exam, prove, exam, laws))
    return out
