"""Measured lengths: where the length that a view asks for was measured, or handed over."""

from __future__ import annotations

import ast

from headwise.dataflow import MarkedOp, Run, source_of
from headwise.recording import Operation
from headwise.source import Span, code_at, function_of, last_given, loads_of, span_like

__all__ = ["own_size"]


def own_size(run: Run, operation: Operation, place: int) -> Span | None:
    """Where the length that a view takes by name was measured, where what is measured on queries has no use there.

    place: of the length among the sizes that it is asked for.
    """
    code = code_at(operation.span)
    function = None if code is None else function_of(code, code.node)
    if code is None or function is None or not isinstance(code.node, ast.Call):
        return None
    for each in _sizes(code.node, place):
        if operation.chain and any(own.arg == each.id for own in function.args.args):
            # a helper is handed the length
            return operation.chain[-1]
        before = last_given(function, each.id, operation.span.line)
        if before is None or not _is_measure(before.value):
            continue
        lines = {name.lineno for name in loads_of(function, each.id)}
        if _has_another(function, before):
            # the other length has a name too, and this one was taken
            continue
        if not any(entry.operation.span.line in lines and _is_of(run, entry, 0) for entry in run.seen):
            return span_like(code, before, operation.span)
    return None


def _sizes(node: ast.Call, place: int) -> list[ast.Name]:
    """The name that a view takes for one of its sizes; where that cannot be told, all that it takes."""
    given = node.args
    if len(given) == 1 and isinstance(given[0], ast.Tuple | ast.List):
        given = given[0].elts
    if place < len(given) and not any(isinstance(each, ast.Starred) for each in given):
        given = [given[place]]
        return [each for each in given if isinstance(each, ast.Name)]
    return [each for each in ast.walk(node) if isinstance(each, ast.Name)]


def _has_another(function: ast.FunctionDef, measure: ast.Assign) -> bool:
    """Whether the same size of another tensor has a name in a function."""

    def parts(node: ast.expr) -> tuple[str, str]:
        if isinstance(node, ast.Subscript):
            return ast.dump(getattr(node.value, "value", node)), ast.dump(node.slice)
        of, given = getattr(getattr(node, "func", None), "value", node), getattr(node, "args", [])
        return ast.dump(of), ast.dump(given[0]) if given else ""

    of, which = parts(measure.value)
    others = [each for each in ast.walk(function) if isinstance(each, ast.Assign) and _is_measure(each.value)]
    return bool(which) and any(a != of and b == which for a, b in (parts(each.value) for each in others))


def _is_of(run: Run, entry: MarkedOp, source: int) -> bool:
    """Whether an operation takes tokens of an argument."""
    held = [each for each in entry.given if each is not None and each.kind == "token"]
    return any(source in source_of(each.arrays["t"]).unique().tolist() for each in held) and len(run.known) > 1


def _is_measure(node: ast.expr) -> bool:
    """Whether an expression asks a tensor for one of its sizes."""
    if isinstance(node, ast.Subscript):
        return isinstance(node.value, ast.Attribute) and node.value.attr == "shape"
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "size"
