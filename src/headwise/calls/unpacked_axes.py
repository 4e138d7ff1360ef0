"""Unpacked axes: the names that docstrings, or else the code where it unpacks shapes, give to axes of arguments."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from headwise.calls.documented_axes import docstring_axes
from headwise.calls.function_trees import written
from headwise.calls.shape_words import docstrings, shape_alone

__all__ = ["spoken_axes"]


def spoken_axes(target: Any, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The names of the axes of arguments, as docstrings give them, or else as the code unpacks their shapes.

    names: of the arguments; a shape that stands by itself in a docstring is that of the first.
    """
    alone = shape_alone(docstrings(target))
    return {
        **_unpacked(target, names),
        **({names[0]: alone} if names and alone else {}),
        **docstring_axes(target, names),
    }


def _unpacked(target: Any, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The names that a function, or the forward of a class, gives to all axes of its arguments: `b, n, d = x.shape`."""
    out: dict[str, tuple[str, ...]] = {}
    trees = [tree for _, tree in written(target, {}) if tree.name in ("forward", getattr(target, "__name__", ""))]
    left = set(names)
    # statement by statement: a name that is given another value is no argument any more
    for node in (node for tree in trees[:1] for statement in tree.body for node in ast.walk(statement)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            left.discard(node.id)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):
            if not all(isinstance(each, ast.Name) for each in node.targets[0].elts):
                continue
            shape = node.value.func if isinstance(node.value, ast.Call) else node.value
            if not isinstance(shape, ast.Attribute) or shape.attr not in ("shape", "size"):
                continue
            if isinstance(shape.value, ast.Name) and shape.value.id in left:
                out.setdefault(shape.value.id, tuple(map(ast.unparse, node.targets[0].elts)))
    return out
