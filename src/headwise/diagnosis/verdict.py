"""Verdict: sound, faulty or not examined, by what was found and compared, and by what rests on a guess."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from headwise.dataflow import mixing_of
from headwise.diagnosis.attention_owners import is_of_torch
from headwise.diagnosis.comparison import uncompared
from headwise.diagnosis.coverage import Missed
from headwise.diagnosis.examination import Examination
from headwise.diagnosis.plans.user_arguments import as_json
from headwise.diagnosis.result import Finding
from headwise.diagnosis.suspects import Suspect
from headwise.wording import say

__all__ = ["rests_on_guess", "verdict_of", "weighed"]

# what is said of each way in which tokens meet without attending to each other
MIXES = {
    "features": "doctor.mixes.features",
    "pooling": "doctor.mixes.pooling",
    "state": "doctor.mixes.state",
}
# what fails in half precision alone
IN_HALF = "mask-half-overflow"
# as which part of the examination it is told that a guess did not hold, and why that part says nothing
PARTS = {
    "layout": ("heads", "doctor.missed.layout_guessed"),
    "axes": ("heads", "doctor.missed.layout_guessed"),
    "sizes": ("heads", "doctor.missed.sizes_guessed"),
    "cache": ("cache", "doctor.missed.cache_guessed"),
    "rotation": ("rotation", "doctor.missed.unmended"),
}


def verdict_of(
    target: Any,
    findings: Sequence[Finding],
    exams: Sequence[Examination],
    call: Mapping[str, Any] | None,
    lang: str,
) -> tuple[str, str]:
    """The verdict, and why there is none: "" where there is. call: as it was declared; None: it was not."""
    if any(finding.severity == "fault" for finding in findings):
        return "faulty", ""
    understood = [exam for exam in exams if exam.is_understood]
    if not understood:
        return "not examined", _unfollowed(target, exams, lang)
    crossed = next((missed for exam in exams if isinstance(missed := exam.examined.get("cross"), Missed)), None)
    if crossed is not None:
        return "not examined", say("doctor.fails_apart", lang=lang, **crossed.values)
    if any(_is_call_guessed(exam) for exam in understood):
        return "not examined", _unplaced(next(exam for exam in understood if _is_call_guessed(exam)), call, lang)
    if not any(exam.checks.is_whole for exam in understood):
        return "not examined", say("doctor.not_whole", lang=lang)
    missed = uncompared(understood)
    if missed is not None:
        return "not examined", say("doctor.not_compared", lang=lang, why=say(missed.reason, lang=lang, **missed.values))
    return "sound", ""


def _unfollowed(target: Any, exams: Sequence[Examination], lang: str) -> str:
    """Why no attention was followed: torch's own code makes it in one step, or there is none that is known."""
    if is_of_torch(target):
        return say("doctor.of_torch", lang=lang)
    runs = (exam.run(plan=exam.free) for exam in exams)
    mixing = next(filter(None, map(mixing_of, runs)), None)
    if mixing is None or mixing[1].span is None:
        return say("doctor.no_attention", lang=lang)
    return say(MIXES[mixing[0]], lang=lang, line=mixing[1].span.line)


def _unplaced(exam: Examination, call: Mapping[str, Any] | None, lang: str) -> str:
    """That queries and keys of tokens do not meet: with the call that was tried, or what meets instead where that is
    the one that was declared.
    """
    missed, inputs = exam.examined["heads"], exam.plan.call
    if call is None or not inputs.keys() <= call.keys() or not isinstance(missed, Missed):
        return say("doctor.no_order", lang=lang, call=as_json(inputs))
    key = f"doctor.met.{str(missed.values['met']).replace(' ', '_') or 'other'}"
    return say("doctor.order_said", lang=lang, met=say(key, lang=lang), line=missed.values["line"])


def rests_on_guess(suspect: Suspect) -> bool:
    """Whether nothing but a guess of the doctor's speaks for a fault: how the class is called, or what a step is for,
    and no run that it mends. A guess that does not hold is ours, so it accuses no one.
    """
    return suspect.severity == "fault" and not suspect.proved and (bool(suspect.guess) or _is_unmended(suspect))


def _is_unmended(suspect: Suspect) -> bool:
    """Whether a run that should put it right was made, and does not show that it does."""
    is_tried = suspect.repair.is_runnable or suspect.fault.needs_proof == "samples"
    return suspect.proved is False and is_tried and bool(suspect.fault.needs_proof)


def weighed(exams: Sequence[Examination], *, is_in_half: bool = False) -> list[Examination]:
    """Examinations without what rests on a guess alone: the part that it spoiled is told as not examined.

    Where no order of axes was found in which queries and keys meet, only what was measured stands, and what no order
    would mend. Of a call that has too few axes even what was measured is ours. Beside another fault a run that should
    mend one shows nothing, and takes nothing back. is_in_half: the target says that it runs in half precision: what
    fails there in the classes that it holds is a fault.
    """
    if is_in_half:
        exams = [exam.with_suspects(map(_as_fault, exam.suspects)) for exam in exams]
    is_spoiled = any(
        suspect.severity == "fault" and not rests_on_guess(suspect) for exam in exams for suspect in exam.suspects
    )
    is_short = any(suspect.guess == "axes" for exam in exams for suspect in exam.suspects)
    out = []
    for exam in exams:
        taken = [each for each in exam.suspects if rests_on_guess(each) and (each.guess or not is_spoiled)]
        out.append(exam.with_suspects(each for each in exam.suspects if all(each is not guess for guess in taken)))
        for suspect in taken:
            unproved = (suspect.fault.needs_proof, "doctor.missed.unmended")
            part, reason = PARTS[suspect.guess] if suspect.guess else unproved
            line = "?" if suspect.span is None else suspect.span.line
            exam.examined[part] = Missed(reason, {"line": line, "met": suspect.values.get("met", "")})
    if not any(_is_call_guessed(exam) for exam in out):
        return out
    return [
        exam.with_suspects(
            suspect for suspect in exam.suspects if (suspect.proved and not is_short) or not _is_of_axes(suspect)
        )
        for exam in out
    ]


def _as_fault(suspect: Suspect) -> Suspect:
    """What fails in half precision as a fault."""
    return replace(suspect, severity="fault") if suspect.kind == IN_HALF else suspect


def _is_of_axes(suspect: Suspect) -> bool:
    """Whether a fault may come of the order of axes: not a name that is nowhere."""
    return suspect.severity == "fault" and suspect.fault.family != "names"


def _is_call_guessed(exam: Examination) -> bool:
    """Whether axes or sizes that nobody said spoiled what a verdict needs: then nothing is said to be sound."""
    missed = exam.examined.get("heads")
    return isinstance(missed, Missed) and missed.reason in {PARTS[part][1] for part in ("layout", "sizes")}
