"""Result names: what the person's own lines call the results of their operations."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from headwise.tracing.function_lines import functions, indent_of
from headwise.tracing.steps import Place

__all__ = ["RETURNED", "Assigned", "Calling"]

# what the code gives back has no name there
RETURNED = "output"


@dataclass(frozen=True)
class Assigned:
    """An expression and the names that it is given. start, end: (line, column), the end exclusive.

    names: none where it is what its function gives back. is_each: it runs once for each name.
    """

    start: tuple[int, int]
    end: tuple[int, int]
    names: tuple[str, ...]
    is_each: bool = False

    @property
    def is_returned(self) -> bool:
        """Whether it has no name, since it is what its function gives back."""
        return not self.names


class Calling:
    """Reads sources, and says what the result of an operation is called. sources: as in `Trace`."""

    def __init__(self, sources: Mapping[str, str]) -> None:
        self._read = {name: list(_assigned(text.split("\n"))) for name, text in sources.items()}

    def name(
        self, op: str, place: Place, chain: Sequence[Place], *, part: int = 0, turn: int = 0, turns: int = 1
    ) -> str:
        """What a result is called: "q" where it is assigned to q, "q · view" where it is part of what is; "": nothing.

        part: which of several results. turn: which of the `turns` times that it ran there. What a helper gives back is
        called as its caller calls it.
        """
        start, end = (place.line, place.column or 0), (place.end_line or place.line, place.end_column or 0)
        around = [each for each in self._read.get(place.file, []) if each.start <= start and end <= each.end]
        if not around:
            return ""
        found = max(around, key=lambda each: (each.start, (-each.end[0], -each.end[1])))
        is_whole = (found.start, found.end) == (start, end)
        if found.is_returned and chain and is_whole:
            return self.name(op, chain[-1], chain[:-1], part=part, turn=turn, turns=turns)
        if found.is_returned and chain:
            name = self.name("", chain[-1], chain[:-1], part=part, turn=turn, turns=turns)
        elif found.is_returned:
            name = RETURNED
        elif found.is_each and turns == len(found.names):
            name = found.names[turn]
        elif is_whole and not found.is_each and part < len(found.names):
            name = found.names[part]
        else:
            name = ", ".join(found.names)
        return name if is_whole or not (op and name) else f"{name} · {op}"


def _assigned(lines: Sequence[str]) -> Iterator[Assigned]:
    """Each expression of the functions of a file that is given a name or given back; the file may be a note."""
    for first, last in functions(lines):
        block = lines[first - 1 : last]
        indent = min((indent_of(line) for line in block if line.strip()), default=0)
        try:
            tree = ast.parse(textwrap.dedent("\n".join(block)))
        except SyntaxError:
            continue
        for node in ast.walk(tree):
            for expression, names, is_each in _named(node):
                yield _found(expression, names, block, first - 1, indent, is_each=is_each)


def _named(node: ast.AST) -> Iterator[tuple[ast.AST, tuple[str, ...], bool]]:
    """The expressions of a statement, what each is called, and whether it runs once for each of its names."""
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
            # what is unpacked late, such as a map, runs as it is given its names
            yield target, _names(target), True
            if isinstance(node.value, ast.GeneratorExp | ast.ListComp):
                yield node.value.elt, _names(target), True
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = zip(target.elts, node.value.elts, strict=False)
                yield from ((value, _names(own), False) for own, value in pairs)


def _names(target: ast.AST) -> tuple[str, ...]:
    if isinstance(target, ast.Tuple | ast.List):
        return tuple(ast.unparse(each) for each in target.elts) or ("_",)
    return (ast.unparse(target),)


def _found(
    node: ast.AST, names: tuple[str, ...], block: Sequence[str], above: int, indent: int, *, is_each: bool
) -> Assigned:
    """An expression of a block that was moved left by `indent` and stands under `above` lines."""
    edges = []
    for line, column in (
        (getattr(node, "lineno", 1), getattr(node, "col_offset", 0)),
        (getattr(node, "end_lineno", 1), getattr(node, "end_col_offset", 0)),
    ):
        # Python counts columns in bytes
        text = block[line - 1][indent:].encode()[:column].decode(errors="ignore")
        edges.append((above + line, indent + len(text)))
    return Assigned(edges[0], edges[1], names, is_each)
