"""Syntax: the syntax tree of the code at a span, and edits that leave the rest of the text unchanged."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from types import CodeType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwise.source.spans import Span

__all__ = [
    "Code", "Edit", "Edits", "Function", "applied", "characters", "code_at", "file_tree", "function_node", "nodes_of",
]  # fmt: skip

Function = ast.FunctionDef | ast.AsyncFunctionDef
# the texts whose trees are kept, and the trees and parts of trees whose nodes are
KEPT, NODES_KEPT = 64, 1024


@dataclass(frozen=True)
class Edit:
    """A replacement for a piece of source: lines from 1, columns from 0 in characters, the end exclusive."""

    line: int
    column: int
    end_line: int
    end_column: int
    text: str


Edits = tuple[Edit, ...]


def applied(text: str, edits: Sequence[Edit]) -> str:
    """A text after edits that do not overlap."""
    # as Python counts them: a form feed ends no line
    lines = [f"{line}\n" for line in text.split("\n")]
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    for edit in sorted(edits, key=lambda change: (change.line, change.column), reverse=True):
        if edit.end_line > len(lines):
            continue
        start, stop = starts[edit.line - 1] + edit.column, starts[edit.end_line - 1] + edit.end_column
        text = text[:start] + edit.text + text[stop:]
    return text


@dataclass(frozen=True)
class Code:
    """A node of a file's syntax tree. tree: of the whole file."""

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
        lines = self.lines[where.line - 1 : where.end_line]
        if len(lines) == 1:
            return lines[0][where.column : where.end_column]
        return "".join([lines[0][where.column :], *lines[1:-1], lines[-1][: where.end_column]])

    def edit(self, node: ast.AST, text: str) -> Edit:
        """The edit that replaces a node by a text."""
        line, stop = int(getattr(node, "lineno", 1)), int(getattr(node, "end_lineno", 1) or 1)
        start, end = int(getattr(node, "col_offset", 0)), int(getattr(node, "end_col_offset", 0) or 0)
        return Edit(line, characters(self.file, line, start), stop, characters(self.file, stop, end), text)

    def nodes(self, wanted: Callable[[ast.AST], bool]) -> Iterator[ast.AST]:
        """The nodes of the file that meet a condition."""
        return (node for node in ast.walk(self.tree) if wanted(node))

    def around(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes around a node, from the innermost outward."""
        parents = {child: parent for parent in ast.walk(self.tree) for child in ast.iter_child_nodes(parent)}
        while node in parents:
            node = parents[node]
            yield node

    def has(self, name: str) -> bool:
        """Whether the file binds a name by an import."""
        return any(
            (alias.asname or alias.name) == name
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        )

    def bracketed(self, node: ast.AST) -> str:
        """The text of a node, in brackets where it has several operands and is no matrix product."""
        is_product = isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult)
        is_simple = isinstance(node, ast.Name | ast.Attribute | ast.Call | ast.Subscript | ast.Constant)
        return self.of(node) if is_simple or is_product else f"({self.of(node)})"

    def alone(self, text: str, node: ast.AST) -> str:
        """A replacement text for a node, in brackets where precedence could split it."""
        parent = next(self.around(node), None)
        is_whole = isinstance(parent, ast.Assign | ast.Return | ast.AnnAssign | ast.Call | ast.keyword | ast.Expr)
        if is_whole and not (isinstance(parent, ast.Call) and parent.func is node):
            return text
        return text if self._is_bracketed(node) else f"({text})"

    def _is_bracketed(self, node: ast.AST) -> bool:
        """Whether brackets stand right around a node."""
        at = self.edit(node, "")
        before, after = self.lines[at.line - 1][: at.column].rstrip(), self.lines[at.end_line - 1][at.end_column :]
        return before.endswith("(") and after.lstrip().startswith(")")


def file_tree(file: str) -> ast.Module | None:
    """The syntax tree of a file, which is shared and stays as it is; None: the file is no Python."""
    return _parsed("".join(linecache.getlines(file)))


def function_node(code: CodeType) -> Function | None:
    """The definition of a function in the tree of its file; None: its source is not readable."""
    return _definitions("".join(linecache.getlines(code.co_filename))).get((code.co_name, code.co_firstlineno))


@lru_cache(maxsize=NODES_KEPT)
def nodes_of(tree: ast.AST) -> tuple[ast.AST, ...]:
    """Every node of a tree that stays as it is, in the order of `ast.walk`, which is walked once."""
    return tuple(ast.walk(tree))


@lru_cache(maxsize=KEPT)
def _parsed(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError):
        return None


@lru_cache(maxsize=KEPT)
def _definitions(text: str) -> Mapping[tuple[str, int], Function]:
    """The functions of a text by their names and first lines, which are those of their first decorators."""
    tree = _parsed(text)
    nodes = [node for node in nodes_of(tree) if isinstance(node, Function)] if tree is not None else []
    return {
        (node.name, min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])): node
        for node in nodes
    }


def code_at(span: Span | None) -> Code | None:
    """The code of a span; None: its file is no Python, or no node has this span."""
    if span is None:
        return None
    tree = file_tree(span.file)
    if tree is None:
        return None
    if span.column is None:
        # only the line is known: take the statement there
        statements = [each for each in nodes_of(tree) if isinstance(each, ast.stmt) and _is_at(each, span.line)]
        return Code(statements[-1], span.file, tree) if statements else None
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


def characters(file: str, line: int, column: int) -> int:
    """A column that Python counts in bytes, counted in characters."""
    text = linecache.getline(file, line)
    return column if text.isascii() else len(text.encode()[:column].decode(errors="ignore"))
