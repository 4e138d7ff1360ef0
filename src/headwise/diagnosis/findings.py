"""Findings: a suspect as a finding: its line, its sentences in a language, and what was measured."""

from __future__ import annotations

import linecache
from collections.abc import Mapping, Sequence

from headwise.diagnosis.check_runner import Held
from headwise.diagnosis.faults import SEVERITIES
from headwise.diagnosis.patches.candidates import candidates
from headwise.diagnosis.result import Finding
from headwise.diagnosis.suspects import Suspect
from headwise.wording import said_in, say

__all__ = ["findings_of"]

# what a sentence may speak of; what is not known of it is left empty
NAMES = ("name", "near", "wanted", "factor", "axis", "was", "leak", "error", "what")


def findings_of(suspects: Sequence[Suspect], files: Mapping[str, str], held: Held, lang: str) -> tuple[Finding, ...]:
    """All that was found in words, faults first. files: what to call each of the person's own."""
    found = [_finding(each, files, held, lang) for each in suspects]
    return tuple(sorted(found, key=lambda each: SEVERITIES.index(each.severity)))


def _finding(suspect: Suspect, files: Mapping[str, str], held: Held, lang: str) -> Finding:
    span = suspect.span if suspect.home is None else suspect.home
    said = dict(suspect.said)
    words = suspect.fault.words(lang)
    what, why, fix = (_filled(sentence, lang, said) for sentence in (words.what, words.why, words.fix))
    evidence = suspect.evidence
    is_number = evidence[:1].isdigit() or evidence == "inf"
    if evidence == "inf":
        evidence = say("doctor.evidence.endless", lang=lang)
    if evidence and suspect.proved:
        how = said.get("how") or ("replaced" if is_number else "raised_laws")
        evidence = say(f"doctor.evidence.{how}", lang=lang, error=evidence.rstrip("."), after=said.get("after", ""))
    elif is_number:
        evidence = say("doctor.evidence.apart", lang=lang, error=evidence)
    if said.get("error") and not evidence:
        evidence = str(said["error"])
    source = linecache.getline(span.file, span.line).rstrip("\n") if span is not None else ""
    # what is so on purpose is not patched
    patches = () if suspect.severity == "note" else held("patches", (), candidates, suspect)
    return Finding(
        kind=suspect.kind, severity=suspect.severity, line=None if span is None else span.line,
        end_line=None if span is None else span.end_line or span.line, column=None if span is None else span.column,
        source=source, proved=bool(suspect.proved), evidence=evidence,
        file="" if span is None else files.get(span.file, span.file),
        end_column=None if span is None else span.end_column, code="" if span is None else span.source,
        candidates=patches, what=what, why=why, fix=fix,
    )  # fmt: skip


def _filled(sentence: str, lang: str, values: Mapping[str, object]) -> str:
    filled = {name: said_in(value, lang) for name, value in values.items()}
    return sentence.format(**{**dict.fromkeys(NAMES, ""), **filled})
