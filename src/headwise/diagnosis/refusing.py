"""Refusing: what code says itself that it does not take is no failure of it."""

from __future__ import annotations

import linecache

from headwise.recording.operations import Failure

__all__ = ["is_refusal"]


def is_refusal(failure: Failure) -> bool:
    """Whether the code itself says that it does not take such a call."""
    if failure.operation is not None or failure.span is None:
        return False
    line = linecache.getline(failure.span.file, failure.span.line).strip()
    return line.split(" ")[0].split("(")[0] in ("raise", "assert")
