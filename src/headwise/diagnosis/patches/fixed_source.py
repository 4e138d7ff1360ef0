"""Fixed source: the person's source with the patches that help."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from headwise.diagnosis.faults.fault import FAULT
from headwise.diagnosis.result import Finding
from headwise.source import Edit, applied

__all__ = ["difference", "fixed", "unfixed"]


def fixed(text: str, findings: Sequence[Finding]) -> str:
    """A file's text with the patches of its findings; of two that meet the first stays. The rest is left as it is."""
    return applied(text, list(dict.fromkeys(edit for finding in _patched(findings) for edit in finding.edits)))


def unfixed(findings: Sequence[Finding]) -> list[Finding]:
    """The faults that stay when the others are mended: they have no patch, or one that meets another's."""
    patched = _patched(findings)
    return [fault for fault in findings if fault.severity == FAULT and all(fault is not mended for mended in patched)]


def _patched(findings: Sequence[Finding]) -> list[Finding]:
    """The findings whose patches are taken."""
    out: list[Finding] = []
    for finding in findings:
        before = [edit for mended in out if mended.file == finding.file for edit in mended.edits]
        if finding.edits and not any(_meets(a, b) for a in finding.edits for b in before if a != b):
            out.append(finding)
    return out


def _meets(a: Edit, b: Edit) -> bool:
    return (a.line, a.column) < (b.end_line, b.end_column) and (b.line, b.column) < (a.end_line, a.end_column)


def difference(before: str, after: str, name: str, written: str) -> str:
    """What changed from a file to what is written, as a unified difference."""
    lines = difflib.unified_diff(_lines(before), _lines(after), name, written, lineterm="")
    return "\n".join(lines)


def _lines(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n")
