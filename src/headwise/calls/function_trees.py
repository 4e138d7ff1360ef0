"""Function trees: the syntax trees of the functions that a target is made of, the person's own helpers among them."""

from __future__ import annotations

import ast
import inspect
import io
import linecache
import textwrap
import tokenize
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from torch import nn

from headwise.calls.records import opened_tree
from headwise.source import nodes_of

__all__ = ["Written", "tree_of", "written", "written_tree"]

Written = ast.FunctionDef
# what these wrote is no code of a person's; the files of models in transformers are read like a person's
LIBRARIES = ("torch", "builtins", "typing", "einops", "numpy", "collections", "functools", "dataclasses")
# so many helpers are enough to know a target by
MOST = 40


def written(target: Any, namespace: Mapping[str, Any]) -> list[tuple[Callable[..., Any], Written]]:
    """Each function of a class, or the function itself, and those of the person's own that they name, with its tree.

    What has no source at hand, and what torch or a library of layers wrote, is left out.
    """
    out: list[tuple[Callable[..., Any], Written]] = []
    visited: set[int] = set()
    waiting = [target]
    while waiting and len(out) < MOST:
        current = waiting.pop(0)
        if id(current) in visited:
            continue
        visited.add(id(current))
        for function in dict.fromkeys(_functions(current)):
            tree = tree_of(function)
            if tree is not None:
                out.append((function, tree))
                scope = {**namespace, **getattr(function, "__globals__", {})}
                waiting.extend(_named(tree, scope))
    return out


def _functions(target: Any) -> Iterator[Callable[..., Any]]:
    kind = target if isinstance(target, type) or not isinstance(target, nn.Module) else type(target)
    if isinstance(kind, type):
        for parent in kind.__mro__:
            if _is_library(parent):
                continue
            for member in vars(parent).values():
                function = inspect.unwrap(getattr(member, "__func__", member)) if callable(member) else member
                if inspect.isfunction(function) and function.__code__.co_filename != "<string>":
                    yield function
    else:
        function = inspect.unwrap(getattr(kind, "__func__", kind)) if callable(kind) else kind
        if inspect.isfunction(function):
            yield function


def _is_library(code: Any) -> bool:
    module = str(getattr(code, "__module__", ""))
    is_model = module.startswith("transformers.models.") and ".modeling_" in module
    return module.split(".")[0] in LIBRARIES or (module.startswith("transformers.") and not is_model)


def _named(tree: Written, scope: Mapping[str, Any]) -> Iterator[Any]:
    """The classes and functions that a tree names and that no library wrote."""
    for node in nodes_of(tree):
        value = scope.get(node.id) if isinstance(node, ast.Name) else None
        is_code = inspect.isfunction(value) or isinstance(value, type)
        if is_code and not _is_library(value):
            yield value


def tree_of(function: Callable[..., Any]) -> Written | None:
    """The syntax tree of a function, in which the parts of its records are names; None: it has no source."""
    tree = written_tree(function)
    return None if tree is None else _opened(tree)


def written_tree(function: Callable[..., Any]) -> Written | None:
    """The syntax tree of a function as it is written; None: it has no source."""
    code = getattr(function, "__code__", None)
    if code is None:
        return None
    lines = linecache.getlines(code.co_filename, getattr(function, "__globals__", None))[code.co_firstlineno - 1 :]
    return _parsed("".join(lines))


_opened = lru_cache(maxsize=128)(opened_tree)


@lru_cache(maxsize=128)
def _parsed(text: str) -> Written | None:
    """The tree of the function that a text begins with."""
    try:
        parsed = ast.parse(textwrap.dedent("".join(inspect.getblock(io.StringIO(text).readlines()))))
    except (SyntaxError, ValueError, IndexError, tokenize.TokenError):
        return None
    return next((node for node in parsed.body if isinstance(node, ast.FunctionDef)), None)
