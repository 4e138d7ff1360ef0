"""Class fragments: one class from the fragments of it in a note."""

from __future__ import annotations

import ast
import copy
from collections.abc import Sequence

from headwise.targets.source_file import first_parameter

__all__ = ["Placed", "joined"]

Placed = tuple[str, ast.stmt]
CALLED = ("forward", "__call__", "call")
PLAIN = ("nn.Module", "torch.nn.Module", "Module", "object")


def joined(nodes: Sequence[Placed], name: str) -> list[Placed]:
    """Statements with one definition of a class, as complete as possible, where a note defines it several times.

    Among several definitions, the last one that can be built and called stays. Where none can be called, the last one
    gets the methods of the others, and then a bare `def forward(self, …)` of the note.
    """
    places = [place for place, (_, node) in enumerate(nodes) if isinstance(node, ast.ClassDef) and node.name == name]
    if not places:
        return list(nodes)
    most = max(_wholeness(nodes[place][1]) for place in places)
    dropped = {place for place in places if _wholeness(nodes[place][1]) < most}
    last = max(set(places) - dropped)
    file, kept = nodes[last]
    if isinstance(kept, ast.ClassDef) and not _is_called(kept):
        kept = copy.copy(kept)
        others = [each for place in places if place != last for each in _body(nodes[place][1])]
        loose = [node for _, node in nodes if first_parameter(node) == "self"]
        for method in (*others, *loose):
            if isinstance(method, ast.FunctionDef) and method.name not in _methods(kept):
                kept.body = [*kept.body, method]
    return [(file, kept) if place == last else each for place, each in enumerate(nodes) if place not in dropped]


def _wholeness(node: ast.stmt) -> int:
    """2: the class can be built and called; 1: one of the two; 0: neither."""
    if not isinstance(node, ast.ClassDef):
        return 0
    if any(ast.unparse(base) not in PLAIN for base in node.bases):
        # the base class may define the rest
        return 2
    return ("__init__" in _methods(node)) + _is_called(node)


def _is_called(node: ast.ClassDef) -> bool:
    return bool(_methods(node) & set(CALLED)) or any(ast.unparse(base) not in PLAIN for base in node.bases)


def _methods(node: ast.ClassDef) -> set[str]:
    return {each.name for each in node.body if isinstance(each, ast.FunctionDef)}


def _body(node: ast.stmt) -> list[ast.stmt]:
    return node.body if isinstance(node, ast.ClassDef) else []
