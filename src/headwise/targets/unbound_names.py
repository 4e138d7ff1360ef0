"""Unbound names: where names without a binding fail at loading, and whether the file is complete."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence

from headwise.targets.dependencies import Needs
from headwise.targets.statements import Statement
from headwise.targets.target import Target

__all__ = ["early_reads", "form_of"]

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
# blocks that may catch an error, or skip a statement
GUARDED = (ast.Try, ast.If, ast.For, ast.While, ast.With)


def form_of(target: Target, body: Sequence[Statement]) -> str:
    """The form of a target. "file": its imports bind all its names; "open": a star import or exec may bind any name;
    "fragment": it is part of a note or a notebook, or has no imports.
    """
    if target.kind != "python" or not any(each.is_import for each in body):
        return "fragment"
    calls = (node for each in body for node in ast.walk(each.node) if isinstance(node, ast.Call))
    is_open = any(each.is_star for each in body) or any(_name(call.func) in ("exec", "globals") for call in calls)
    return "open" if is_open else "file"


def early_reads(body: Sequence[Statement], needed: Needs, names: Collection[str]) -> dict[str, tuple[str, ast.Name]]:
    """The first read of each name at loading, where its absence is an error: the file, and the node."""
    out: dict[str, tuple[str, ast.Name]] = {}
    for at in sorted(needed.chosen):
        statement = body[at]
        for name in sorted(statement.now & set(names) - out.keys()) if not isinstance(statement.node, GUARDED) else ():
            read = next((node for node in _run_now(statement.node) if node.id == name), None)
            if read is not None:
                out[name] = statement.file, read
    return out


def _run_now(node: ast.AST) -> Iterator[ast.Name]:
    """The names that a statement reads when it runs: not those in the bodies of its functions."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Name):
            yield child
        if isinstance(node, FUNCTIONS) and child in (node.body if isinstance(node.body, list) else [node.body]):
            continue
        if not isinstance(child, GUARDED):
            yield from _run_now(child)


def _name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else ""
