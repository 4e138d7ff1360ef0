"""Verdict: sound, faulty or not examined, by what was found and what was compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headwise.dataflow import mixing_of
from headwise.diagnosis.attention_owners import is_of_torch
from headwise.diagnosis.comparison import uncompared
from headwise.diagnosis.coverage import Missed
from headwise.diagnosis.evidence import is_call_guessed
from headwise.diagnosis.examination import Examination
from headwise.diagnosis.plans.user_arguments import as_json
from headwise.diagnosis.result import Finding
from headwise.wording import say

__all__ = ["verdict_of"]

# what is said of each way in which tokens meet without attending to each other
MIXES = {
    "features": "doctor.mixes.features",
    "pooling": "doctor.mixes.pooling",
    "state": "doctor.mixes.state",
}


def verdict_of(
    target: Any,
    findings: Sequence[Finding],
    exams: Sequence[Examination],
    call: Mapping[str, Any] | None,
    lang: str,
) -> tuple[str, str]:
    """The verdict, and why there is none: "" where there is. call: as it was declared; None: it was not."""
    if any(each.severity == "fault" for each in findings):
        return "faulty", ""
    known = [exam for exam in exams if exam.is_understood]
    if not known:
        return "not examined", _unfollowed(target, exams, lang)
    crossed = next((each for exam in exams if isinstance(each := exam.examined.get("cross"), Missed)), None)
    if crossed is not None:
        return "not examined", say("doctor.fails_apart", lang=lang, **crossed.values)
    if any(is_call_guessed(exam) for exam in known):
        return "not examined", _unplaced(next(exam for exam in known if is_call_guessed(exam)), call, lang)
    if not any(exam.held.is_whole for exam in known):
        return "not examined", say("doctor.not_whole", lang=lang)
    missed = uncompared(known)
    if missed is not None:
        return "not examined", say("doctor.not_compared", lang=lang, why=say(missed.reason, lang=lang, **missed.values))
    return "sound", ""


def _unfollowed(target: Any, exams: Sequence[Examination], lang: str) -> str:
    """Why no attention was followed: torch's own code makes it in one step, or there is none that is known."""
    if is_of_torch(target):
        return say("doctor.of_torch", lang=lang)
    runs = (exam.run(plan=exam.free) for exam in exams)
    mixing = next(filter(None, map(mixing_of, runs)), None)
    if mixing is None or mixing[1].operation.span is None:
        return say("doctor.no_attention", lang=lang)
    return say(MIXES[mixing[0]], lang=lang, line=mixing[1].operation.span.line)


def _unplaced(exam: Examination, call: Mapping[str, Any] | None, lang: str) -> str:
    """That queries and keys of tokens do not meet: with the call that was tried, or what meets instead where that is
    the one that was declared.
    """
    missed, inputs = exam.examined["heads"], exam.plan.call
    if call is None or not inputs.keys() <= call.keys() or not isinstance(missed, Missed):
        return say("doctor.no_order", lang=lang, call=as_json(inputs))
    key = f"doctor.met.{str(missed.values['met']).replace(' ', '_') or 'other'}"
    return say("doctor.order_said", lang=lang, met=say(key, lang=lang), line=missed.values["line"])
