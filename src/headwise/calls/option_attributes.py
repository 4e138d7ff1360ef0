"""Option attributes: attributes that a module has only where it is built with an option."""

from __future__ import annotations

import ast

from torch import nn

from headwise.calls.failed_statement import own_frames, statements_at
from headwise.calls.function_trees import tree_of

__all__ = ["is_of_options"]


def is_of_options(error: AttributeError) -> bool:
    """Whether a module lacks an attribute as it is built here alone: its constructor sets it in a branch, and what
    reads it stands in a branch too, as what is kept for keys of another input.
    """
    frames = own_frames(error)
    if not isinstance(error.obj, nn.Module) or not frames:
        return False
    is_asked_for = any(isinstance(statement, ast.If) for statement in statements_at(*frames[-1]))
    return is_asked_for and any(_sets_in_branch(kind, str(error.name)) for kind in type(error.obj).__mro__)


def _sets_in_branch(kind: type, name: str) -> bool:
    """Whether the constructor of a class, its base classes aside, sets an attribute in a branch."""
    constructor = vars(kind).get("__init__")
    tree = None if constructor is None else tree_of(constructor)
    branches = [node for node in ast.walk(tree) if isinstance(node, ast.If)] if tree is not None else []
    return any(
        isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and node.attr == name
        for branch in branches
        for node in ast.walk(branch)
    )
