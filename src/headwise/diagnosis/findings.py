"""Findings: a suspect as a finding: its line, its sentences in a language, and what was measured."""

from __future__ import annotations

import linecache
from collections.abc import Mapping, Sequence

from headwise.diagnosis.check_runner import CheckRunner
from headwise.diagnosis.faults import SEVERITIES
from headwise.diagnosis.patches.candidates import candidates
from headwise.diagnosis.result import Finding
from headwise.diagnosis.suspects import Suspect
from headwise.wording import said_in, say

__all__ = ["findings_of", "merged"]

# what a sentence may speak of; what is not known of it is left empty
NAMES = ("name", "near", "wanted", "factor", "axis", "was", "leak", "error", "what")


def findings_of(
    suspects: Sequence[Suspect], files: Mapping[str, str], checks: CheckRunner, lang: str
) -> tuple[Finding, ...]:
    """All that was found in words, faults first. files: what to call each of the person's own."""
    findings = [_finding(suspect, files, checks, lang) for suspect in suspects]
    return tuple(sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity)))


def _finding(suspect: Suspect, files: Mapping[str, str], checks: CheckRunner, lang: str) -> Finding:
    span = suspect.span if suspect.home is None else suspect.home
    values = dict(suspect.values)
    words = suspect.fault.words(lang)
    problem, why, fix = (_filled(sentence, lang, values) for sentence in (words.what, words.why, words.fix))
    evidence = suspect.evidence
    is_number = evidence[:1].isdigit() or evidence == "inf"
    if evidence == "inf":
        evidence = say("doctor.evidence.endless", lang=lang)
    if evidence and suspect.proved:
        how = values.get("how") or ("replaced" if is_number else "raised_laws")
        evidence = say(f"doctor.evidence.{how}", lang=lang, error=evidence.rstrip("."), after=values.get("after", ""))
    elif is_number:
        evidence = say("doctor.evidence.apart", lang=lang, error=evidence)
    if values.get("error") and not evidence:
        evidence = str(values["error"])
    source = linecache.getline(span.file, span.line).rstrip("\n") if span is not None else ""
    # what is so on purpose is not patched
    patches = () if suspect.severity == "note" else checks("patches", (), candidates, suspect)
    return Finding(
        kind=suspect.kind, severity=suspect.severity, line=None if span is None else span.line,
        end_line=None if span is None else span.end_line or span.line, column=None if span is None else span.column,
        source=source, proved=bool(suspect.proved), evidence=evidence,
        file="" if span is None else files.get(span.file, span.file),
        end_column=None if span is None else span.end_column, code="" if span is None else span.source,
        candidates=patches, what=problem, why=why, fix=fix,
    )  # fmt: skip


def _filled(sentence: str, lang: str, values: Mapping[str, object]) -> str:
    filled = {name: said_in(value, lang) for name, value in values.items()}
    return sentence.format(**{**dict.fromkeys(NAMES, ""), **filled})


def merged(suspects: list[Suspect]) -> list[Suspect]:
    """Each thing once, that which is proved before that which is not."""
    out: dict[tuple[str, object], Suspect] = {}
    for suspect in suspects:
        span = suspect.span
        place = span if suspect.home is None else suspect.home
        key = (suspect.general, place if suspect.severity == "fault" or span is None else (span.file, span.line))
        if key not in out or (suspect.proved and not out[key].proved):
            out[key] = suspect
    return _plain(list(out.values()))


def _plain(suspects: list[Suspect]) -> list[Suspect]:
    """Without consequences of a fault that is proved: on its own line, or of a wrong layout."""
    proved = [suspect for suspect in suspects if suspect.severity == "fault" and suspect.proved]
    lines = {(suspect.span.file, suspect.span.line) for suspect in proved if suspect.span is not None}
    has_layout = any(suspect.fault.breaks_layout for suspect in proved)
    faults = [suspect for suspect in suspects if suspect.severity == "fault" and suspect.general != "mask-raises"]
    # scores of another shape fit no mask
    is_misshapen = any(fault.fault.breaks_layout or fault.fault.follows_layout for fault in faults)

    # samples that took the place of tokens leak in every operation after it
    is_turned = any(suspect.fault.breaks_layout and suspect.fault.needs_proof == "samples" for suspect in proved)

    def is_sign(suspect: Suspect) -> bool:
        if is_turned and suspect.fault.needs_proof == "samples" and not suspect.fault.breaks_layout:
            return True
        if suspect.kind == "differs-from-every-formula":
            return any(finding.severity == "fault" for finding in suspects)
        if suspect.severity != "fault" or suspect.proved:
            return False
        return (suspect.span is not None and (suspect.span.file, suspect.span.line) in lines) or (
            suspect.fault.follows_layout and (is_misshapen if suspect.general == "mask-raises" else has_layout)
        )

    return [suspect for suspect in suspects if not is_sign(suspect)]
