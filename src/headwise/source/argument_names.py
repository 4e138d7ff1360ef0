"""Argument names: the statement that assigns the argument of a call from another name, or from a list."""

from __future__ import annotations

import ast

from headwise.source.spans import Span
from headwise.source.syntax import code_at

__all__ = ["bound_to"]


def bound_to(span: Span) -> Span | None:
    """The name or subscript that the last assignment of a call's argument reads; None: it reads neither."""
    code = code_at(span)
    around = [] if code is None else list(code.around(code.node))
    function = next((each for each in around if isinstance(each, ast.FunctionDef)), None)
    if code is None or function is None or not isinstance(code.node, ast.Call):
        return None
    parts = [*code.node.args, *([code.node.func.value] if isinstance(code.node.func, ast.Attribute) else [])]
    names = {each.id for each in parts if isinstance(each, ast.Name)}
    assignments = [
        (node, goal, value)
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and node.lineno < span.line
        for goal, value in _pairs(node)
        if isinstance(goal, ast.Name) and goal.id in names
    ]
    node, _, value = max(assignments, key=lambda assignment: assignment[0].lineno, default=(None, None, None))
    if node is None or not isinstance(value, ast.Name | ast.Subscript):
        return None
    edit = code.edit(node if value is node.value else value, "")
    return Span(code.file, span.function, edit.line, edit.column, edit.end_line, edit.end_column)


def _pairs(node: ast.Assign) -> list[tuple[ast.expr, ast.expr]]:
    """The targets of an assignment, each with its value."""
    goal = node.targets[0]
    if not isinstance(goal, ast.Tuple):
        return [(goal, node.value)]
    is_alike = isinstance(node.value, ast.Tuple) and len(node.value.elts) == len(goal.elts)
    values = node.value.elts if is_alike and isinstance(node.value, ast.Tuple) else [node.value] * len(goal.elts)
    return list(zip(goal.elts, values, strict=True))
