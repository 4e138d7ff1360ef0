"""Mask condition: whether a mask is looked at only where another one is given too."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator, Set
from typing import Any

from headwise.calls import callee, mask_arguments, parameters
from headwise.dataflow import Run

__all__ = ["waits_for_another"]


def waits_for_another(run: Run) -> bool:
    """Whether the code reads a run's mask, and nowhere but where it asks for a mask that was not given."""
    name = run.plan.mask
    others = {each for each in mask_arguments(parameters(callee(run.target))) if each not in (name, *run.plan.call)}
    reads = list(_reads(_tree(run), name, others, is_within=False)) if others else []
    return bool(reads) and all(reads)


def _tree(run: Run) -> ast.AST:
    """The function that is called."""
    kind = type(run.target)
    function: Any = getattr(kind, "forward", kind.__call__)
    function = run.target if inspect.isfunction(run.target) else function
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function))))
    except (OSError, TypeError, SyntaxError):
        return ast.Pass()


def _reads(node: ast.AST, name: str, others: Set[str], *, is_within: bool) -> Iterator[bool]:
    """Of each place where a name is read, whether that is where one of others was asked for."""
    if isinstance(node, ast.Name):
        if node.id == name and isinstance(node.ctx, ast.Load):
            yield is_within
    elif isinstance(node, ast.If | ast.IfExp):
        asked = {each.id for each in ast.walk(node.test) if isinstance(each, ast.Name)}
        body: list[ast.AST] = [*node.body] if isinstance(node, ast.If) else [node.body]
        other: list[ast.AST] = [*node.orelse] if isinstance(node, ast.If) else [node.orelse]
        yield from _reads(node.test, name, others, is_within=is_within or bool(asked & others))
        for each in body:
            yield from _reads(each, name, others, is_within=is_within or bool(asked & others))
        for each in other:
            yield from _reads(each, name, others, is_within=is_within)
    else:
        for each in ast.iter_child_nodes(node):
            yield from _reads(each, name, others, is_within=is_within)
