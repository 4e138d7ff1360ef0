"""Keyword arguments: the parameters that a function reads out of its `**kwargs`, or makes a record of."""

from __future__ import annotations

import ast
import dataclasses
import inspect
from collections.abc import Callable, Iterator
from functools import lru_cache
from types import CodeType
from typing import Any

from headwise.calls.argument_axes import last
from headwise.calls.function_trees import tree_of

__all__ = ["keyword_arguments"]

# methods of a dictionary that take a key, and what stands for it where it is missing
READS = ("get", "pop")


def keyword_arguments(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """The keys that a function reads out of its `**kwargs`, as keyword-only parameters; what has to be there has no
    default.

    >>> def attend(x, **kwargs):
    ...     return x @ kwargs["context"].mT + kwargs.get("bias", 0.0)
    >>> [str(each) for each in keyword_arguments(attend)]
    ['context', 'bias=0.0']
    """
    plain = inspect.unwrap(getattr(function, "__func__", function))
    code = getattr(plain, "__code__", None)
    if code is None or not code.co_flags & inspect.CO_VARKEYWORDS:
        return []
    read = dict(_read(code, plain))
    return [inspect.Parameter(each, inspect.Parameter.KEYWORD_ONLY, default=read[each]) for each in read]


@lru_cache(maxsize=256)
def _read(code: CodeType, function: Callable[..., Any]) -> tuple[tuple[str, Any], ...]:
    tree = tree_of(function)
    if tree is None or tree.args.kwarg is None:
        return ()
    out: dict[str, Any] = {}
    for name, default in (*_keys(tree, tree.args.kwarg.arg), *_fields(tree, tree.args.kwarg.arg, function)):
        # a key that is asked for somewhere need not be there
        if name.isidentifier() and name not in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]:
            out[name] = default if name not in out or out[name] is inspect.Parameter.empty else out[name]
    return tuple(out.items())


def _keys(tree: ast.AST, kwargs: str) -> Iterator[tuple[str, Any]]:
    """Each key that is read, with its default, in the order of the code."""
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.expr))
    for node in sorted(nodes, key=lambda node: (node.lineno, node.col_offset)):
        key: ast.expr
        default: Any = inspect.Parameter.empty
        if isinstance(node, ast.Subscript) and _is_name(node.value, kwargs) and isinstance(node.ctx, ast.Load):
            key = node.slice
        elif isinstance(node, ast.Compare) and _is_name(node.comparators[0], kwargs):
            key, default = node.left, None
        elif isinstance(node, ast.Call) and _is_read(node.func, kwargs) and node.args:
            key, *rest = node.args
            if rest or last(node.func) != "pop":
                default = _value(rest)
        else:
            continue
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            yield key.value, default


def _fields(tree: ast.AST, kwargs: str, function: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """The fields of a record that is made of all keys, as `Config(**kwargs)`, with their defaults."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or node.args or not isinstance(node.func, ast.Name):
            continue
        if [each.arg for each in node.keywords] != [None] or not _is_name(node.keywords[0].value, kwargs):
            continue
        kind = getattr(function, "__globals__", {}).get(node.func.id)
        for field in dataclasses.fields(kind) if dataclasses.is_dataclass(kind) and isinstance(kind, type) else ():
            if field.init and field.default_factory is dataclasses.MISSING:
                yield field.name, inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default


def _is_read(node: ast.expr, kwargs: str) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in READS and _is_name(node.value, kwargs)


def _is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _value(nodes: list[ast.expr]) -> Any:
    """The default that is written out; None: there is none."""
    return nodes[0].value if nodes and isinstance(nodes[0], ast.Constant) else None
