"""Syntax: the syntax tree of code at a span, and edits of it that leave the rest as it stands."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwise.source.spans import Span

__all__ = ["Code", "Edit", "Edits", "applied", "code_at"]


@dataclass(frozen=True)
class Edit:
    """A text in place of a piece of source: lines from 1, columns from 0 in characters, the end exclusive."""

    line: int
    column: int
    end_line: int
    end_column: int
    text: str


Edits = tuple[Edit, ...]


def applied(text: str, edits: Sequence[Edit]) -> str:
    """A text with edits in place that do not overlap."""
    # as Python counts them: a form feed ends no line
    lines = [f"{line}\n" for line in text.split("\n")]
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    for each in sorted(edits, key=lambda one: (one.line, one.column), reverse=True):
        if each.end_line > len(lines):
            continue
        start, stop = starts[each.line - 1] + each.column, starts[each.end_line - 1] + each.end_column
        text = text[:start] + each.text + text[stop:]
    return text


@dataclass(frozen=True)
class Code:
    """A node of a file's syntax tree. parents: of every node of that tree."""

    node: ast.AST
    file: str
    tree: ast.AST

    @cached_property
    def lines(self) -> list[str]:
        """The lines of the file."""
        return linecache.getlines(self.file)

    def of(self, node: ast.AST) -> str:
        """The text of a node."""
        where = self.edit(node, "")
        own = self.lines[where.line - 1 : where.end_line]
        if len(own) == 1:
            return own[0][where.column : where.end_column]
        return "".join([own[0][where.column :], *own[1:-1], own[-1][: where.end_column]])

    def edit(self, node: ast.AST, text: str) -> Edit:
        """A text in place of a node."""
        line, stop = int(getattr(node, "lineno", 1)), int(getattr(node, "end_lineno", 1) or 1)
        start, end = int(getattr(node, "col_offset", 0)), int(getattr(node, "end_col_offset", 0) or 0)
        return Edit(line, _characters(self.lines, line, start), stop, _characters(self.lines, stop, end), text)

    def nodes(self, wanted: Callable[[ast.AST], bool]) -> Iterator[ast.AST]:
        """The nodes of the file that are wanted."""
        return (each for each in ast.walk(self.tree) if wanted(each))

    def around(self, node: ast.AST) -> Iterator[ast.AST]:
        """What a node stands in, from the inside outward."""
        parents = {child: parent for parent in ast.walk(self.tree) for child in ast.iter_child_nodes(parent)}
        while node in parents:
            node = parents[node]
            yield node

    def has(self, name: str) -> bool:
        """Whether the file binds a name by an import."""
        return any(
            (each.asname or each.name) == name
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Import | ast.ImportFrom)
            for each in node.names
        )

    def bracketed(self, node: ast.AST) -> str:
        """The text of a node, in brackets where it has parts that stand side by side."""
        is_product = isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult)
        is_simple = isinstance(node, ast.Name | ast.Attribute | ast.Call | ast.Subscript | ast.Constant)
        return self.of(node) if is_simple or is_product else f"({self.of(node)})"

    def alone(self, text: str, node: ast.AST) -> str:
        """A text for the place of a node, in brackets where what it stands in could take it apart."""
        parent = next(self.around(node), None)
        is_whole = isinstance(parent, ast.Assign | ast.Return | ast.AnnAssign | ast.Call | ast.keyword | ast.Expr)
        if is_whole and not (isinstance(parent, ast.Call) and parent.func is node):
            return text
        return f"({text})"


def code_at(span: Span | None) -> Code | None:
    """The code of a span; None: its file is no Python, or nothing stands just there."""
    if span is None:
        return None
    lines = linecache.getlines(span.file)
    try:
        tree = ast.parse("".join(lines))
    except (SyntaxError, ValueError):
        return None
    if span.column is None:
        # only its line is known: the statement there
        own = [each for each in ast.walk(tree) if isinstance(each, ast.stmt) and _is_at(each, span.line)]
        return Code(own[-1], span.file, tree) if own else None
    wanted = (span.line, span.column, span.end_line or span.line, span.end_column)
    for node in ast.walk(tree):
        if not isinstance(node, ast.expr | ast.stmt):
            continue
        at = Code(node, span.file, tree).edit(node, "")
        if (at.line, at.column, at.end_line, at.end_column) == wanted:
            return Code(node, span.file, tree)
    return None


def _is_at(node: ast.stmt, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _characters(lines: Sequence[str], line: int, column: int) -> int:
    """A column that Python counts in bytes, counted in characters."""
    text = lines[line - 1] if line <= len(lines) else ""
    return column if text.isascii() else len(text.encode()[:column].decode(errors="ignore"))
