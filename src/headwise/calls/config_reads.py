"""Config reads: which names a function reads of an object that holds its sizes."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from headwise.calls.argument_axes import last
from headwise.calls.function_trees import Written
from headwise.calls.roles import init_role
from headwise.source import nodes_of

__all__ = ["MAPPING", "config_reads"]

# what a mapping has beside its keys
MAPPING = ("get", "keys", "items", "copy", "values", "update", "to_dict", "pop", "setdefault")
# of these the first argument is a key
BY_KEY = ("get", "pop", "setdefault")


def config_reads(tree: Written) -> dict[str, tuple[str, ...]]:
    """What is read of each parameter that is no tensor: `n_embd` of config.n_embd, `[n_embd]` of config["n_embd"].

    What lies in a part of it has the path to it: `model.n_embd` of config.model.n_embd. What has a default where it is
    read, and a name that says no size, is left at that.
    """
    names = {argument.arg for argument in [*tree.args.posonlyargs, *tree.args.args, *tree.args.kwonlyargs]} - {"self"}
    # `c = config`
    other_names = {
        last(node.targets[0]): node.value.id
        for node in nodes_of(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name) and node.value.id in names
        and isinstance(node.targets[0], ast.Name)
    }  # fmt: skip
    out: dict[str, list[str]] = {}
    for node in nodes_of(tree):
        for of, name in _reads(node):
            owner, path = _root(of, name, names | other_names.keys())
            if owner:
                out.setdefault(other_names.get(owner, owner), []).append(path)
    return {name: tuple(reads) for name, reads in out.items()}


def _root(of: ast.expr, path: str, names: Collection[str]) -> tuple[str, str]:
    """The name of what is given whose part an expression reads, and the path to what is read; "": it is not given."""
    while not _is_given(of, names):
        inner = next(_reads(of), None)
        # a method of a value is no part of it
        if inner is None or any(hasattr(kind, path) for kind in (str, list, dict)):
            return "", ""
        of, path = inner[0], f"{inner[1]}.{path}"
    return last(of), path


def _reads(node: ast.AST) -> Iterator[tuple[ast.expr, str]]:
    """The objects of which an expression reads something, and what."""
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
        yield node.value, node.attr
    elif isinstance(node, ast.Subscript):
        key = getattr(node.slice, "value", None)
        if isinstance(key, str):
            yield node.value, f"[{key}]"
    elif isinstance(node, ast.Call):
        is_by_key = isinstance(node.func, ast.Attribute) and node.func.attr in BY_KEY
        if isinstance(node.func, ast.Attribute) and is_by_key:
            of, *key_and_default = node.func.value, *node.args
        elif last(node.func) == "getattr" and node.args:
            of, *key_and_default = node.args
        else:
            return
        key = getattr(key_and_default[0], "value", None) if key_and_default else None
        if isinstance(key, str) and (len(key_and_default) == 1 or init_role(key)):
            yield of, f"[{key}]" if is_by_key else key


def _is_given(node: ast.AST, names: Collection[str]) -> bool:
    """Whether a value is a parameter, or a config that was kept."""
    if isinstance(node, ast.Name):
        return node.id in names or init_role(node.id) == "config"
    return isinstance(node, ast.Attribute) and init_role(node.attr) == "config"
