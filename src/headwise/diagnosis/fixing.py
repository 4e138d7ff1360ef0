"""Fixing: the person's source with what can be mended by replacing text."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Sequence

from headwise.diagnosis.diagnosis import Finding

__all__ = ["difference", "fixed"]


def fixed(text: str, findings: Sequence[Finding]) -> str:
    """A file's text with every patch in place that fits where it says, from the last to the first."""
    lines = text.splitlines(keepends=True)
    ready = [each for each in findings if each.patch and each.line is not None and each.line == each.end_line]
    done: set[int] = set()
    for each in sorted(ready, key=lambda one: (one.line or 0, one.column or 0), reverse=True):
        at = (each.line or 1) - 1
        line = lines[at]
        code = each.code
        if at in done or line.count(code) != 1:
            continue
        changed = line.replace(code, each.patch)
        if _is_python("".join([*lines[:at], changed, *lines[at + 1 :]])) or not _is_python(text):
            lines[at] = changed
            done.add(at)
    return "".join(lines)


def difference(before: str, after: str, name: str) -> str:
    """What changed, as a unified difference."""
    made = difflib.unified_diff(before.splitlines(), after.splitlines(), name, f"{name} (fixed)", lineterm="")
    return "\n".join(made)


def _is_python(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    return True
