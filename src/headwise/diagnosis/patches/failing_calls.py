"""Failing calls: what lies behind a call that fails: the source with that call mended, examined in its stead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from headwise.diagnosis.faults import fault_of
from headwise.diagnosis.patches.trials import Again, Effort, by_file, mended
from headwise.diagnosis.result import Diagnosis, Finding
from headwise.source import Edit, applied

__all__ = ["uncovered"]


def uncovered(found: Diagnosis, texts: Mapping[str, str], again: Again, *, effort: Effort, lang: str) -> Diagnosis:
    """A diagnosis with what its target does wrong once the calls that fail are mended. effort: of trying patches."""
    ends = [each for each in found.faults if fault_of(each.kind).ends_call and each.edits]
    edits = by_file((each, each.edits) for each in ends)
    then = again(edits) if ends else None
    if then is None or then.verdict == "not examined":
        return found
    after = {file: applied(text, edits.get(file, ())) for file, text in texts.items()}

    def further(more: Mapping[str, Sequence[Edit]]) -> Diagnosis | None:
        back = {file: [_back(each, edits.get(file, ())) for each in own] for file, own in more.items()}
        if any(_lines(own) & _lines(edits.get(file, ())) for file, own in back.items()):
            return None
        files = {*edits, *back}
        return again({file: (*edits.get(file, ()), *back.get(file, ())) for file in files})

    then = mended(then, after, further, effort=effort, lang=lang)
    new = [_at_home(each, edits.get(each.file, ())) for each in then.findings]
    kept = tuple(each for each in new if not _is_among(each, ends))
    return replace(found, findings=(*ends, *kept), examined=then.examined)


def _at_home(finding: Finding, edits: Sequence[Edit]) -> Finding:
    """A finding of the mended source at its lines in the source as it is."""
    if finding.line is None or finding.end_line is None:
        return finding
    end = finding.end_line - _shift(finding.end_line, edits)
    own = tuple(_back(each, edits) for each in finding.edits)
    return replace(finding, line=finding.line - _shift(finding.line, edits), end_line=end, edits=own)


def _back(edit: Edit, edits: Sequence[Edit]) -> Edit:
    """An edit of the mended source as one of the source as it is."""
    return replace(
        edit, line=edit.line - _shift(edit.line, edits), end_line=edit.end_line - _shift(edit.end_line, edits)
    )


def _shift(line: int, edits: Sequence[Edit]) -> int:
    """How many lines edits put before a line of what they gave."""
    out = 0
    for each in sorted(edits, key=lambda one: one.line):
        if each.line + out < line:
            out += each.text.count("\n") - (each.end_line - each.line)
    return out


def _lines(edits: Sequence[Edit]) -> set[int]:
    return {line for each in edits for line in range(each.line, each.end_line + 1)}


def _is_among(finding: Finding, others: Sequence[Finding]) -> bool:
    return any((each.kind, each.file, each.line) == (finding.kind, finding.file, finding.line) for each in others)
