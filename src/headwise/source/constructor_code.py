"""Constructor code: the syntax trees of a class's constructors, and the assignments of parameters in them."""

from __future__ import annotations

import ast
import inspect
import linecache
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType

from torch import nn

from headwise.source.lookup import returned
from headwise.source.spans import Span

__all__ = ["Constructor", "assigned", "constructors"]


@dataclass(frozen=True)
class Constructor:
    """A constructor of user code. tree: of its text below an added first line `if True:`."""

    code: CodeType
    tree: ast.Module

    def span(self, node: ast.expr | ast.stmt) -> Span:
        """The place of a node in the file."""
        before = self.code.co_firstlineno - 2
        end = (node.end_lineno or node.lineno) + before
        name, file = self.code.co_qualname, self.code.co_filename
        return Span(file, name, node.lineno + before, node.col_offset, end, node.end_col_offset)


def constructors(kind: type) -> Iterator[Constructor]:
    """The constructors of a class and of its bases, in their order, where the source is readable."""
    for base in kind.__mro__:
        code = getattr(vars(base).get("__init__"), "__code__", None)
        if code is None or base is nn.Module:
            continue
        lines = linecache.getlines(code.co_filename)
        block = inspect.getblock(lines[code.co_firstlineno - 1 :]) if lines else []
        try:
            tree = ast.parse("if True:\n" + "".join(block)) if block else None
        except SyntaxError:
            continue
        if tree is not None:
            yield Constructor(code, tree)


def assigned(target: nn.Module, names: list[str]) -> Span | None:
    """The assignment of the module that holds a parameter, in the code of its class; None: there is none."""
    for attribute in (full.split(".")[0] for full in names):
        for constructor in constructors(type(target)):
            for node in ast.walk(constructor.tree):
                if not isinstance(node, ast.Assign | ast.AnnAssign) or not _is_for(node, attribute):
                    continue
                origin = None if node.value is None else returned(constructor.code.co_filename, node.value)
                return origin if origin is not None else constructor.span(node)
    return None


def _is_for(node: ast.Assign | ast.AnnAssign, attribute: str) -> bool:
    """Whether an attribute is among the targets of an assignment."""
    goals = node.targets if isinstance(node, ast.Assign) else [node.target]
    parts = (each for goal in goals for each in ast.walk(goal))
    return any(isinstance(each, ast.Attribute) and each.attr == attribute for each in parts)
