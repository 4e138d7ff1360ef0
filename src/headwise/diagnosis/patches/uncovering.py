"""Uncovering: what lies behind a call that fails: the source with that call mended, examined in its stead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from headwise.diagnosis.diagnosis import Diagnosis, Finding
from headwise.diagnosis.patches.mending import ENDING, Again, Effort, mended
from headwise.diagnosis.patches.sources import Edit, applied

__all__ = ["uncovered"]


def uncovered(found: Diagnosis, texts: Mapping[str, str], again: Again, *, effort: Effort, lang: str) -> Diagnosis:
    """A diagnosis with what its target does wrong once the calls that fail are mended. effort: of trying patches."""
    ends = [each for each in found.faults if each.kind in ENDING and each.edits]
    edits = _by_file(ends)
    after = {file: applied(text, edits.get(file, ())) for file, text in texts.items()}
    if not ends or any(after[file].count("\n") != text.count("\n") for file, text in texts.items()):
        return found
    then = again(edits)
    if then is None or then.verdict == "not examined":
        return found

    def further(more: Mapping[str, Sequence[Edit]]) -> Diagnosis | None:
        if any(_lines(own) & _lines(edits.get(file, ())) for file, own in more.items()):
            return None
        files = {*edits, *more}
        return again({file: (*edits.get(file, ()), *more.get(file, ())) for file in files})

    then = mended(then, after, further, effort=effort, lang=lang)
    new = tuple(each for each in then.findings if not _is_among(each, ends))
    return replace(found, findings=(*ends, *new), examined=then.examined)


def _by_file(findings: Sequence[Finding]) -> dict[str, list[Edit]]:
    out: dict[str, list[Edit]] = {}
    for finding in findings:
        known = out.setdefault(finding.file, [])
        known += [each for each in finding.edits if each not in known]
    return out


def _lines(edits: Sequence[Edit]) -> set[int]:
    return {line for each in edits for line in range(each.line, each.end_line + 1)}


def _is_among(finding: Finding, others: Sequence[Finding]) -> bool:
    return any((each.kind, each.file, each.line) == (finding.kind, finding.file, finding.line) for each in others)
