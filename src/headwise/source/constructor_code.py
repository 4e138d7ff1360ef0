"""Constructor code: the code of a class's constructors, and where in it something is made."""

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
    """A constructor of the person's. tree: of its text, one line below where it stands in its file."""

    code: CodeType
    tree: ast.Module

    def span(self, node: ast.expr | ast.stmt) -> Span:
        """Where a node of its tree stands."""
        before = self.code.co_firstlineno - 2
        end = (node.end_lineno or node.lineno) + before
        name, file = self.code.co_qualname, self.code.co_filename
        return Span(file, name, node.lineno + before, node.col_offset, end, node.end_col_offset)


def constructors(kind: type) -> Iterator[Constructor]:
    """The constructors of a class and of those that it is made of, its own first; none whose source is not at hand."""
    for each in kind.__mro__:
        code = getattr(vars(each).get("__init__"), "__code__", None)
        if code is None or each is nn.Module:
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
    """Where a module that holds a parameter was assigned in its class's code."""
    for attribute in (full.split(".")[0] for full in names):
        for own in constructors(type(target)):
            for node in ast.walk(own.tree):
                if not isinstance(node, ast.Assign | ast.AnnAssign) or not _is_for(node, attribute):
                    continue
                made = None if node.value is None else returned(own.code.co_filename, node.value)
                return made if made is not None else own.span(node)
    return None


def _is_for(node: ast.Assign | ast.AnnAssign, attribute: str) -> bool:
    """Whether an assignment gives a value to an attribute, be it one of several."""
    goals = node.targets if isinstance(node, ast.Assign) else [node.target]
    parts = (each for goal in goals for each in ast.walk(goal))
    return any(isinstance(each, ast.Attribute) and each.attr == attribute for each in parts)
