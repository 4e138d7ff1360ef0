"""Forward method: a class whose forward is misspelt, or returns nothing of what it computed."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import Any

from torch import nn

from headwise.calls import lacks_forward, methods_of
from headwise.dataflow import Run
from headwise.diagnosis.suspects import Suspect
from headwise.source import Span, function_node

__all__ = ["forward_suspects", "silent_suspects"]

FORWARD = "forward"
# as alike as `forword` and `foward`, and not as `forward_step` or `for_each`
ALIKE = 0.8
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef


def forward_suspects(target: Any) -> list[Suspect]:
    """The method of a class of modules without forward whose name is a misspelt forward; none where no one is."""
    if not lacks_forward(target):
        return []
    likest = max(methods_of(target), key=lambda method: _likeness(method.__name__), default=None)
    if likest is None or _likeness(likest.__name__) < ALIKE:
        return []
    code, lines = likest.__code__, inspect.getsourcelines(likest)[0]
    # below its decorators
    below = next((at for at, text in enumerate(lines) if f"def {likest.__name__}" in text), 0)
    span = Span(code.co_filename, code.co_qualname, code.co_firstlineno + below)
    name = (target if isinstance(target, type) else type(target)).__name__
    values = {"name": name, "was": likest.__name__, "near": FORWARD, "how": "raised_laws"}
    error = f'NotImplementedError: Module [{name}] is missing the required "forward" function'
    return [Suspect("forward-misnamed", span, values=values, proved=True, evidence=error)]


def _likeness(name: str) -> float:
    """How much of a name, but for case and underscores around it, is that of forward; 1: all of it."""
    return SequenceMatcher(None, name.strip("_").lower(), FORWARD).ratio()


def silent_suspects(run: Run) -> list[Suspect]:
    """A call that ran to its end and gave None, where nothing that it is written as returns a value."""
    is_silent = run.failure is None and run.record.result is None and bool(run.record.operations)
    if not is_silent or not isinstance(run.target, nn.Module):
        # a function may work in place
        return []
    function = inspect.unwrap(type(run.target).forward)
    code = getattr(function, "__code__", None)
    written = None if code is None else function_node(code)
    if code is None or written is None or any(statement.value is not None for statement in _returns(written)):
        return []
    last = written.body[-1]
    if not _is_result(last):
        return []
    span = Span(code.co_filename, code.co_name, last.lineno)
    return [Suspect("returns-none", span)]


def _is_result(last: ast.stmt) -> bool:
    """Whether a last statement makes a value, and writes it into nothing that is there."""
    if isinstance(last, ast.Assign):
        return all(isinstance(target, ast.Name) for target in last.targets)
    call = last.value if isinstance(last, ast.Expr) else None
    name = call.func.attr if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) else ""
    return isinstance(call, ast.Call) and not name.endswith("_")


def _returns(node: ast.AST) -> Iterator[ast.Return]:
    """The return statements of a function itself; what yields counts as one that returns."""
    for part in ast.iter_child_nodes(node):
        if isinstance(part, ast.Return):
            yield part
        elif isinstance(part, ast.Yield | ast.YieldFrom):
            yield ast.Return(value=part)
        elif not isinstance(part, FUNCTIONS | ast.Lambda | ast.ClassDef):
            yield from _returns(part)
