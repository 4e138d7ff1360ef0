"""Evidence: what a fault may rest on: what was measured, or shows however the code is called; never a guess alone."""

from __future__ import annotations

from collections.abc import Sequence

from headwise.diagnosis.coverage import Missed
from headwise.diagnosis.examination import Examination
from headwise.diagnosis.suspects import Suspect

__all__ = ["is_call_guessed", "rests_on_guess", "weigh"]

# as which part of the examination it is told that a guess did not hold, and why that part says nothing
PARTS = {
    "layout": ("heads", "doctor.missed.layout_guessed"),
    "axes": ("heads", "doctor.missed.layout_guessed"),
    "sizes": ("heads", "doctor.missed.sizes_guessed"),
    "cache": ("cache", "doctor.missed.cache_guessed"),
    "rotation": ("rotation", "doctor.missed.unmended"),
}


def rests_on_guess(suspect: Suspect) -> bool:
    """Whether nothing but a guess of the doctor's speaks for a fault: how the class is called, or what a step is for,
    and no run that it mends. A guess that does not hold is ours, so it accuses no one.
    """
    return suspect.severity == "fault" and not suspect.proved and (bool(suspect.guess) or _is_unmended(suspect))


def _is_unmended(suspect: Suspect) -> bool:
    """Whether a run that should put it right was made, and does not show that it does."""
    is_tried = suspect.is_mendable or suspect.fault.needs_proof == "samples"
    return suspect.proved is False and is_tried and bool(suspect.fault.needs_proof)


def weigh(exams: Sequence[Examination]) -> None:
    """Take back what rests on a guess alone: the part of the examination that it spoiled is told as not examined.

    Where no order of axes was found in which queries and keys meet, only what was measured stands, and what no order
    would mend. Of a call that has too few axes even what was measured is ours. Beside another fault a run that should
    mend one shows nothing, and takes nothing back.
    """
    is_spoiled = any(each.severity == "fault" and not rests_on_guess(each) for exam in exams for each in exam.suspects)
    is_short = any(each.guess == "axes" for exam in exams for each in exam.suspects)
    for exam in exams:
        for suspect in [each for each in exam.suspects if rests_on_guess(each) and (each.guess or not is_spoiled)]:
            exam.suspects.remove(suspect)
            unproved = (suspect.fault.needs_proof, "doctor.missed.unmended")
            part, reason = PARTS[suspect.guess] if suspect.guess else unproved
            line = "?" if suspect.span is None else suspect.span.line
            exam.examined[part] = Missed(reason, {"line": line, "met": suspect.said.get("met", "")})
    if any(is_call_guessed(exam) for exam in exams):
        for exam in exams:
            exam.suspects = [each for each in exam.suspects if (each.proved and not is_short) or not _is_of_axes(each)]


def _is_of_axes(suspect: Suspect) -> bool:
    """Whether a fault may come of the order of axes: not a name that is nowhere."""
    return suspect.severity == "fault" and suspect.fault.family != "names"


def is_call_guessed(exam: Examination) -> bool:
    """Whether axes or sizes that nobody said spoiled what a verdict needs: then nothing is said to be sound."""
    missed = exam.examined.get("heads")
    return isinstance(missed, Missed) and missed.reason in {PARTS[each][1] for each in ("layout", "sizes")}
