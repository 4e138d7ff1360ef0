"""Picks: the part of an operation's code that is looked up, as its fill, its axis or where a slice begins."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

__all__ = ["Pick", "axis_of", "fill_of", "option_of", "start_of"]

Pick = Callable[[ast.AST], Iterator[ast.expr]]


def fill_of(node: ast.AST) -> Iterator[ast.expr]:
    """The candidates for the number with which an operation fills: of a call, an assignment, or a product."""
    if isinstance(node, ast.Call):
        yield from (keyword.value for keyword in node.keywords if keyword.arg in ("value", "other"))
        yield from reversed(node.args)
    elif isinstance(node, ast.Assign | ast.AugAssign):
        yield node.value
    elif isinstance(node, ast.BinOp):
        yield from (node.right, node.left)


def option_of(name: str) -> Pick:
    """A function that picks the option of a call by its name."""

    def pick(node: ast.AST) -> Iterator[ast.expr]:
        yield from (argument.value for argument in getattr(node, "keywords", ()) if argument.arg == name)

    return pick


def axis_of(node: ast.AST) -> Iterator[ast.expr]:
    """The axis that a call is told, by its name or as the last of its arguments."""
    named = [argument.value for argument in getattr(node, "keywords", ()) if argument.arg in ("dim", "axis")]
    yield from named or [each for each in getattr(node, "args", ())[-1:] if isinstance(each, ast.Name)]


def start_of(node: ast.AST) -> Iterator[ast.expr]:
    """The name of the number that a slice begins with."""
    slices = (part for part in ast.walk(node) if isinstance(part, ast.Slice))
    yield from (part.lower for part in slices if isinstance(part.lower, ast.Name))
