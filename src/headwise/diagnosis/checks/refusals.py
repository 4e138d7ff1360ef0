"""Refusals: what code says itself that it does not take, or takes something else for, is no failure of it."""

from __future__ import annotations

import ast
import difflib
import linecache
import re
from collections.abc import Iterable
from typing import Any

from torch import Tensor

from headwise.dataflow import Manner, Run, run
from headwise.diagnosis.plans.small_sizes import level
from headwise.recording import Failure
from headwise.source import Span

__all__ = ["is_of_another_kind", "is_optional", "is_refusal", "is_said", "name_of", "takes_one_size"]

# so alike is what was meant to what was written
NEAR = 0.75


def is_refusal(failure: Failure) -> bool:
    """Whether the code itself says that it does not take such a call."""
    if failure.operation is not None or failure.span is None:
        return False
    return is_said(failure.span.file, failure.span.line)


def is_said(file: str, line: int) -> bool:
    """Whether an error comes from a line that raises it on purpose, or that asserts."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return False
    nodes = (each for each in ast.walk(tree) if isinstance(each, ast.Raise | ast.Assert))
    return any(each.lineno <= line <= (each.end_lineno or each.lineno) for each in nodes)


def name_of(error: NameError) -> str:
    """The name that is not bound; that of a local variable stands in the words alone."""
    return error.name or next(iter(re.findall(r"variable '(\w+)'", str(error))), "")


def is_optional(span: Span | None, name: str) -> bool:
    """Whether a name that is not defined is one that the file imports under a condition: a library is missing here."""
    if span is None:
        return False
    try:
        tree = ast.parse("".join(linecache.getlines(span.file)))
    except (SyntaxError, ValueError):
        return False
    blocks = [node for node in tree.body if isinstance(node, ast.If | ast.Try)]
    found = [node for block in blocks for node in ast.walk(block) if isinstance(node, ast.Import | ast.ImportFrom)]
    return any((each.asname or each.name.partition(".")[0]) == name for node in found for each in node.names)


def is_of_another_kind(error: AttributeError, given: Iterable[Tensor]) -> bool:
    """Whether the code asks an argument, which was guessed to be a tensor, for what is nothing like a tensor's."""
    known = [each for each in dir(Tensor) if not each.startswith("_")]
    near = difflib.get_close_matches(str(error.name), known, n=1, cutoff=NEAR)
    return not near and any(each is error.obj for each in given)


def takes_one_size(done: Run, exam: Any) -> bool:
    """Whether a plan that fails runs where samples and tokens are as many along every axis: then our sizes are wrong.

    exam: its examination.
    """
    manner, sizes = Manner(dtype=exam.dtype), level(done.plan)
    then = run(done.plan, manner, sizes=sizes, stand_ins=exam.stand_ins, own=exam.own, change=exam.change)
    return then.record.failure is None
