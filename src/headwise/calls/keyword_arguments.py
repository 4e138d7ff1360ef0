"""Keyword arguments: the parameters that a function reads out of its `**kwargs`."""

from __future__ import annotations

import ast
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
    return [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default) for name, default in _read(code, plain)
    ]


@lru_cache(maxsize=256)
def _read(code: CodeType, function: Callable[..., Any]) -> tuple[tuple[str, Any], ...]:
    tree = tree_of(function)
    if tree is None or tree.args.kwarg is None:
        return ()
    out: dict[str, Any] = {}
    for name, default in _keys(tree, tree.args.kwarg.arg):
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


def _is_read(node: ast.expr, kwargs: str) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in READS and _is_name(node.value, kwargs)


def _is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _value(nodes: list[ast.expr]) -> Any:
    """The default that is written out; None: there is none."""
    return nodes[0].value if nodes and isinstance(nodes[0], ast.Constant) else None
