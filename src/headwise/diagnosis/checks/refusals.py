"""Refusals: what code says itself that it does not take, or takes something else for, is no failure of it."""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterable

from torch import Tensor

from headwise.dataflow import Run
from headwise.diagnosis.examination import Examination
from headwise.diagnosis.plans.small_sizes import level
from headwise.recording import Failure, Operation
from headwise.source import Span, file_tree, nodes_of

__all__ = ["is_condensed", "is_of_another_kind", "is_optional", "is_refusal", "is_said", "name_of", "takes_one_size"]

# so alike is what was meant to what was written
NEAR = 0.75


def is_refusal(failure: Failure) -> bool:
    """Whether the code itself says that it does not take such a call."""
    if failure.operation is not None or failure.span is None:
        return False
    return is_said(failure.span.file, failure.span.line)


def is_said(file: str, line: int) -> bool:
    """Whether an error comes from a line that raises it on purpose, or that asserts."""
    tree = file_tree(file)
    nodes = (node for node in (nodes_of(tree) if tree is not None else ()) if isinstance(node, ast.Raise | ast.Assert))
    return any(node.lineno <= line <= (node.end_lineno or node.lineno) for node in nodes)


def name_of(error: NameError) -> str:
    """The name that is not bound; that of a local variable stands in the words alone."""
    return error.name or next(iter(re.findall(r"variable '(\w+)'", str(error))), "")


def is_optional(span: Span | None, name: str) -> bool:
    """Whether a name that is not defined is one that the file imports under a condition: a library is missing here."""
    tree = None if span is None else file_tree(span.file)
    if tree is None:
        return False
    blocks = [node for node in tree.body if isinstance(node, ast.If | ast.Try)]
    imports = [node for block in blocks for node in ast.walk(block) if isinstance(node, ast.Import | ast.ImportFrom)]
    return any((each.asname or each.name.partition(".")[0]) == name for node in imports for each in node.names)


def is_of_another_kind(error: AttributeError, arguments: Iterable[Tensor]) -> bool:
    """Whether the code asks an argument, which was guessed to be a tensor, for what is nothing like a tensor's."""
    names = [each for each in dir(Tensor) if not each.startswith("_")]
    near = difflib.get_close_matches(str(error.name), names, n=1, cutoff=NEAR)
    return not near and any(argument is error.obj for argument in arguments)


def takes_one_size(run: Run, exam: Examination) -> bool:
    """Whether a plan that fails runs where samples and tokens are as many along every axis: then our sizes are wrong.

    exam: its examination.
    """
    repeated: Run = exam.run(plan=run.plan, sizes=level(run.plan))
    return repeated.failure is None


def is_condensed(run: Run, operation: Operation | None) -> bool:
    """Whether keys are made of several tokens each, so that nobody says how long a mask of theirs is."""
    lengths = {run.sizes.get(name) for name in "LS"}
    scores = [each for each in (operation.inputs if operation is not None else ()) if each.number in run.marks]
    if not scores or any(score.shape and score.shape[-1] in lengths for score in scores):
        return False
    arrays = run.marks[scores[0].number].arrays
    # heads that took the place of keys are all of one token
    return not arrays or any(bool((arrays[name].diff(dim=-1) != 0).all()) for name in "xy" if name in arrays)
