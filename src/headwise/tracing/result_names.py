"""Result names: the names that user code assigns to the results of operations."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from headwise.tracing.function_lines import functions, indent_of
from headwise.tracing.steps import Place

__all__ = ["RETURNED", "Assigned", "ResultNames"]

# the name of a returned value
RETURNED = "output"


@dataclass(frozen=True)
class Assigned:
    """An expression and the names that it is assigned to. start, end: (line, column), the end exclusive.

    names: (): it is returned. is_each: it runs once for each name.
    """

    start: tuple[int, int]
    end: tuple[int, int]
    names: tuple[str, ...]
    is_each: bool = False

    @property
    def is_returned(self) -> bool:
        """Whether the expression is returned and has no name."""
        return not self.names


class ResultNames:
    """The names of results in some sources. sources: as in `Trace`."""

    def __init__(self, sources: Mapping[str, str]) -> None:
        self._read = {name: list(_assigned(text.split("\n"))) for name, text in sources.items()}

    def assigned(self, file: str) -> tuple[Assigned, ...]:
        """The assigned and returned expressions of a file."""
        return tuple(self._read.get(file, ()))

    def name(
        self, op: str, place: Place, chain: Sequence[Place], *, part: int = 0, turn: int = 0, turns: int = 1
    ) -> str:
        """The name of a result: "q" where it is assigned to q, "q · view" where it is a part of that; "": it has none.

        part: index among several results. turn: index among the `turns` runs of the operation. A value that a helper
        returns has the name in its caller.
        """
        start, end = (place.line, place.column or 0), (place.end_line or place.line, place.end_column or 0)
        around = [each for each in self._read.get(place.file, []) if each.start <= start and end <= each.end]
        if not around:
            return ""
        innermost = max(around, key=lambda expression: (expression.start, (-expression.end[0], -expression.end[1])))
        is_whole = (innermost.start, innermost.end) == (start, end)
        if innermost.is_returned and chain and is_whole:
            return self.name(op, chain[-1], chain[:-1], part=part, turn=turn, turns=turns)
        if innermost.is_returned and chain:
            name = self.name("", chain[-1], chain[:-1], part=part, turn=turn, turns=turns)
        elif innermost.is_returned:
            name = RETURNED
        elif innermost.is_each and turns == len(innermost.names):
            name = innermost.names[turn]
        elif is_whole and not innermost.is_each and part < len(innermost.names):
            name = innermost.names[part]
        else:
            name = ", ".join(innermost.names)
        return name if is_whole or not (op and name) else f"{name} · {op}"


def _assigned(lines: Sequence[str]) -> Iterator[Assigned]:
    """The assigned and returned expressions in the functions of a file, which may be a note."""
    for first, last in functions(lines):
        block = lines[first - 1 : last]
        indent = min((indent_of(line) for line in block if line.strip()), default=0)
        try:
            tree = ast.parse(textwrap.dedent("\n".join(block)))
        except SyntaxError:
            continue
        for node in ast.walk(tree):
            for expression, names, is_each in _named(node):
                yield _located(expression, names, block, first - 1, indent, is_each=is_each)


def _named(node: ast.AST) -> Iterator[tuple[ast.AST, tuple[str, ...], bool]]:
    """The expressions of a statement, their names, and whether they run once for each name."""
    if isinstance(node, ast.Return) and node.value is not None:
        yield node.value, (), False
    elif isinstance(node, ast.AugAssign):
        # torch is called for the whole statement
        yield node, _names(node.target), False
    elif isinstance(node, ast.NamedExpr | ast.AnnAssign) and node.value is not None:
        yield node.value, _names(node.target), False
    elif isinstance(node, ast.Assign):
        for target in node.targets:
            yield node.value, _names(target), False
            # a lazy iterable, such as a map, runs while its target is unpacked
            yield target, _names(target), True
            if isinstance(node.value, ast.GeneratorExp | ast.ListComp):
                yield node.value.elt, _names(target), True
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = zip(target.elts, node.value.elts, strict=False)
                yield from ((value, _names(element), False) for element, value in pairs)


def _names(target: ast.AST) -> tuple[str, ...]:
    if isinstance(target, ast.Tuple | ast.List):
        return tuple(ast.unparse(element) for element in target.elts) or ("_",)
    return (ast.unparse(target),)


def _located(
    node: ast.AST, names: tuple[str, ...], block: Sequence[str], above: int, indent: int, *, is_each: bool
) -> Assigned:
    """An expression with its position in the file. indent: columns removed from the block; above: lines before it."""
    edges = []
    for line, column in (
        (getattr(node, "lineno", 1), getattr(node, "col_offset", 0)),
        (getattr(node, "end_lineno", 1), getattr(node, "end_col_offset", 0)),
    ):
        # Python counts columns in bytes
        text = block[line - 1][indent:].encode()[:column].decode(errors="ignore")
        edges.append((above + line, indent + len(text)))
    return Assigned(edges[0], edges[1], names, is_each)
