"""Class fragments: one class out of the pieces in which a note shows it."""

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
    """Statements in which a class is defined once, as whole as it can be made, where a note shows it several times.

    Of several definitions, those that can be built and called count, and the last of them as in Python. Where none can
    be called, the last takes the methods of the others, and then the bare `def forward(self, …)` beside it.
    """
    own = [place for place, (_, node) in enumerate(nodes) if isinstance(node, ast.ClassDef) and node.name == name]
    if not own:
        return list(nodes)
    most = max(_wholeness(nodes[place][1]) for place in own)
    dropped = {place for place in own if _wholeness(nodes[place][1]) < most}
    last = max(set(own) - dropped)
    file, kept = nodes[last]
    if isinstance(kept, ast.ClassDef) and not _is_called(kept):
        kept = copy.copy(kept)
        others = [each for place in own if place != last for each in _body(nodes[place][1])]
        loose = [node for _, node in nodes if first_parameter(node) == "self"]
        for each in (*others, *loose):
            if isinstance(each, ast.FunctionDef) and each.name not in _methods(kept):
                kept.body = [*kept.body, each]
    return [(file, kept) if place == last else each for place, each in enumerate(nodes) if place not in dropped]


def _wholeness(node: ast.stmt) -> int:
    """2 of a class that can be built and called, less of one that shows only a part of that."""
    if not isinstance(node, ast.ClassDef):
        return 0
    if any(ast.unparse(base) not in PLAIN for base in node.bases):
        # what it lacks comes from a parent
        return 2
    return ("__init__" in _methods(node)) + _is_called(node)


def _is_called(node: ast.ClassDef) -> bool:
    return bool(_methods(node) & set(CALLED)) or any(ast.unparse(base) not in PLAIN for base in node.bases)


def _methods(node: ast.ClassDef) -> set[str]:
    return {each.name for each in node.body if isinstance(each, ast.FunctionDef)}


def _body(node: ast.stmt) -> list[ast.stmt]:
    return node.body if isinstance(node, ast.ClassDef) else []
