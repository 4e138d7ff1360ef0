"""Fixed source: the person's source with the patches that help."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from headwise.diagnosis.result import Finding
from headwise.source import Edit, applied

__all__ = ["difference", "fixed"]


def fixed(text: str, findings: Sequence[Finding]) -> str:
    """A file's text with the patches of its findings; of two that meet the first stays. The rest is left as it is."""
    edits: list[Edit] = []
    for finding in findings:
        if not any(_meets(a, b) for a in finding.edits for b in edits if a != b):
            edits += [edit for edit in finding.edits if edit not in edits]
    return applied(text, edits)


def _meets(a: Edit, b: Edit) -> bool:
    return (a.line, a.column) < (b.end_line, b.end_column) and (b.line, b.column) < (a.end_line, a.end_column)


def difference(before: str, after: str, name: str, written: str) -> str:
    """What changed from a file to what is written, as a unified difference."""
    lines = difflib.unified_diff(_lines(before), _lines(after), name, written, lineterm="")
    return "\n".join(lines)


def _lines(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n")
