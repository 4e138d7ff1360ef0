"""Unbound names: what code reads and nothing binds, where that fails at loading, and whether the file is complete."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence

from headwise.targets.dependencies import Needs
from headwise.targets.statements import Statement
from headwise.targets.target import Target

__all__ = ["early_reads", "form_of"]

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
# blocks in which an error may be met, or a statement left out
GUARDED = (ast.Try, ast.If, ast.For, ast.While, ast.With)


def form_of(target: Target, own: Sequence[Statement]) -> str:
    """ "file": its own imports are all it has, without which Python cannot run it; "open": what it takes from elsewhere
    may bind any name; "fragment": it is shown in a note or a notebook, or imports nothing at all.
    """
    if target.kind != "python" or not any(each.is_import for each in own):
        return "fragment"
    calls = (node for each in own for node in ast.walk(each.node) if isinstance(node, ast.Call))
    is_open = any(each.is_star for each in own) or any(_name(call.func) in ("exec", "globals") for call in calls)
    return "open" if is_open else "file"


def early_reads(own: Sequence[Statement], found: Needs, names: Collection[str]) -> dict[str, tuple[str, ast.Name]]:
    """Where names are read without which a file cannot even be loaded: its file, and the place in its tree."""
    out: dict[str, tuple[str, ast.Name]] = {}
    for at in sorted(found.chosen):
        each = own[at]
        for name in sorted(each.now & set(names) - out.keys()) if not isinstance(each.node, GUARDED) else ():
            read = next((node for node in _run_now(each.node) if node.id == name), None)
            if read is not None:
                out[name] = each.file, read
    return out


def _run_now(node: ast.AST) -> Iterator[ast.Name]:
    """The names in a statement that are read as it runs: not those in the bodies of its functions."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Name):
            yield child
        if isinstance(node, FUNCTIONS) and child in (node.body if isinstance(node.body, list) else [node.body]):
            continue
        if not isinstance(child, GUARDED):
            yield from _run_now(child)


def _name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else ""
