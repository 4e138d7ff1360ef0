"""Refusing: what code says itself that it does not take, or takes something else for, is no failure of it."""

from __future__ import annotations

import difflib
import linecache
from collections.abc import Iterable

from torch import Tensor

from headwise.recording.operations import Failure

__all__ = ["is_of_another_kind", "is_refusal"]

# so alike is what was meant to what was written
NEAR = 0.75


def is_refusal(failure: Failure) -> bool:
    """Whether the code itself says that it does not take such a call."""
    if failure.operation is not None or failure.span is None:
        return False
    line = linecache.getline(failure.span.file, failure.span.line).strip()
    return line.split(" ")[0].split("(")[0] in ("raise", "assert")


def is_of_another_kind(error: AttributeError, given: Iterable[Tensor]) -> bool:
    """Whether the code asks an argument, which was guessed to be a tensor, for what is nothing like a tensor's."""
    known = [each for each in dir(Tensor) if not each.startswith("_")]
    near = difflib.get_close_matches(str(error.name), known, n=1, cutoff=NEAR)
    return not near and any(each is error.obj for each in given)
