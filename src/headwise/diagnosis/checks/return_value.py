"""Return value: a call that gives nothing back, since no line of it returns what was computed."""

from __future__ import annotations

import ast
import inspect
import linecache
from collections.abc import Iterator

from torch import nn

from headwise.dataflow import Run
from headwise.diagnosis.suspects import Suspect
from headwise.source import Span

__all__ = ["silent_suspects"]

FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef


def silent_suspects(done: Run) -> list[Suspect]:
    """A call that ran to its end and gave None, where nothing that it is written as returns a value."""
    is_silent = done.record.failure is None and done.record.result is None and bool(done.record.operations)
    if not is_silent or not isinstance(done.target, nn.Module):
        # a function may work in place
        return []
    function = inspect.unwrap(type(done.target).forward)
    code = getattr(function, "__code__", None)
    written = None if code is None else _function(code.co_filename, code.co_firstlineno, code.co_name)
    if code is None or written is None or any(each.value is not None for each in _returns(written)):
        return []
    last = written.body[-1]
    if not _is_result(last):
        return []
    span = Span(code.co_filename, code.co_name, last.lineno)
    return [Suspect("returns-none", span)]


def _is_result(last: ast.stmt) -> bool:
    """Whether a last statement makes a value, and writes it into nothing that is there."""
    if isinstance(last, ast.Assign):
        return all(isinstance(each, ast.Name) for each in last.targets)
    call = last.value if isinstance(last, ast.Expr) else None
    name = call.func.attr if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) else ""
    return isinstance(call, ast.Call) and not name.endswith("_")


def _function(file: str, line: int, name: str) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """A function by its name and its first line, which is that of its first decorator."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return None
    for node in ast.walk(tree):
        if isinstance(node, FUNCTIONS) and node.name == name:
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            if first <= line <= node.lineno:
                return node
    return None


def _returns(node: ast.AST) -> Iterator[ast.Return]:
    """The return statements of a function itself; what yields counts as one that returns."""
    for each in ast.iter_child_nodes(node):
        if isinstance(each, ast.Return):
            yield each
        elif isinstance(each, ast.Yield | ast.YieldFrom):
            yield ast.Return(value=each)
        elif not isinstance(each, FUNCTIONS | ast.Lambda | ast.ClassDef):
            yield from _returns(each)
