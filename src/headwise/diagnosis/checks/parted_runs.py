"""Parted runs: where two runs on the same inputs part, of which one came after what may have left something."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from headwise.dataflow import MarkedOp
from headwise.diagnosis.distance import distance
from headwise.recording import Operation
from headwise.source import Span, code_at, span_like

__all__ = ["parting"]

NEAR = 1e-9


def parting(first: Sequence[MarkedOp | Operation], second: Sequence[MarkedOp | Operation]) -> Span | None:
    """Where two runs on the same inputs part: the first operation of the second that is another, or gives others; or
    that of the first which the second leaves out, as what it made is kept.
    """
    places = {entry.span for entry in second}
    for a, b in zip(first, second, strict=False):
        if a.span != b.span or a.name != b.name:
            return b.span if a.span in places else _stored_at(a) or a.span
        for x, y in zip(a.outputs, b.outputs, strict=False):
            if x.value is not None and y.value is not None and distance(x.value, y.value) > NEAR:
                return b.span
    return None


def _stored_at(entry: MarkedOp | Operation) -> Span | None:
    """The statement that gives what an operation makes to an attribute: where it stands, where its helper is called, or
    later in the same branch, of what is made there; None: none does.
    """
    operation = entry.operation if isinstance(entry, MarkedOp) else entry
    spans: list[Span] = [operation.span, *reversed(operation.chain)]
    codes = [(span, code) for span in spans if (code := code_at(span)) is not None]
    for span, code in codes:
        around = (code.node, *code.around(code.node))
        if _stores(next((node for node in around if isinstance(node, ast.stmt)), None)):
            return span
    if not codes:
        return None
    span, code = codes[0]
    branch = next((node for node in code.around(code.node) if isinstance(node, ast.If)), None)
    arms = [] if branch is None else [branch.body, branch.orelse]
    arm = next((arm for arm in arms if any(code.node in ast.walk(part) for part in arm)), [])
    names = {name for part in arm for name in _names_of(part)}
    stored = [part for part in arm if part.lineno >= span.line and _stores(part)
              and names & {node.id for node in ast.walk(part) if isinstance(node, ast.Name)}]  # fmt: skip
    return span_like(code, stored[-1], span) if stored else None


def _names_of(statement: ast.stmt) -> list[str]:
    """The variables that a statement assigns."""
    goals = statement.targets if isinstance(statement, ast.Assign) else []
    return [node.id for goal in goals for node in ast.walk(goal) if isinstance(node, ast.Name) and node.id != "self"]


def _stores(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Assign) and any(isinstance(goal, ast.Attribute) for goal in node.targets)
