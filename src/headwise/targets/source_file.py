"""Source file: the code of a target as plain data, read without running any of it."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headwise.wording import Refusal, refusal

__all__ = [
    "Cell",
    "Definition",
    "Source",
    "checked",
    "definitions",
    "first_parameter",
    "is_main_guard",
    "no_python",
    "parsed",
]


@dataclass(frozen=True)
class Cell:
    """Code that stands together. file: a key of Source.texts; code: Python, each line at its place in that text."""

    file: str
    code: str


@dataclass(frozen=True)
class Definition:
    """A class or a function at the top of a file; kind: "class" or "function"; line: of its `class` or `def`."""

    name: str
    kind: str
    file: str
    line: int


@dataclass(frozen=True)
class Source:
    """What was read. title: the target's path; texts: whole texts by the name of their file, as the person says it."""

    title: str
    texts: dict[str, str]
    cells: tuple[Cell, ...]
    definitions: tuple[Definition, ...]


def parsed(code: str) -> ast.Module:
    """The tree of a code; SyntaxError (as for nesting that is too deep) where it is no Python."""
    with warnings.catch_warnings():
        # what Python has to say of an escape such as "\d" is not what was asked
        warnings.simplefilter("ignore")
        try:
            return ast.parse(code)
        except (RecursionError, MemoryError, ValueError) as error:
            raise SyntaxError(f"too deep or not text: {type(error).__name__}") from error


def checked(code: str) -> None:
    """SyntaxError where a code is no whole file of Python, as with a return outside of a function."""
    tree = parsed(code)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            compile(tree, "<target>", "exec", dont_inherit=True)
        except (RecursionError, MemoryError) as error:
            raise SyntaxError(f"too deep: {type(error).__name__}") from error


def no_python(path: str, error: SyntaxError) -> Refusal:
    """That a file is no Python, with the line and the column."""
    if error.lineno is None:
        return refusal("refuse.target_deep", path=path)
    return refusal("refuse.target_syntax", path=path, line=error.lineno, column=error.offset or 1, reason=error.msg)


def definitions(cells: Sequence[Cell]) -> tuple[Definition, ...]:
    """The classes and functions of cells, those inside of if and try too; of several of one name the last.

    A function whose first parameter is self is a method that stands by itself, and is none.
    """
    found: dict[str, Definition] = {}
    for cell in cells:
        for node in top_level(parsed(cell.code).body):
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and first_parameter(node) != "self":
                kind = "class" if isinstance(node, ast.ClassDef) else "function"
                found.pop(node.name, None)
                found[node.name] = Definition(node.name, kind, cell.file, node.lineno)
    return tuple(found.values())


def first_parameter(node: ast.stmt) -> str:
    """The name of the first parameter of a function; "" of anything else."""
    given = node.args.posonlyargs + node.args.args if isinstance(node, ast.FunctionDef) else []
    return given[0].arg if given else ""


def top_level(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that run when a file does, with what if, try and with hold, but without the main guard."""
    for node in body:
        yield node
        if isinstance(node, ast.If) and not is_main_guard(node):
            yield from top_level([*node.body, *node.orelse])
        elif isinstance(node, ast.With):
            yield from top_level(node.body)
        elif isinstance(node, ast.Try):
            yield from top_level([*node.body, *(each for h in node.handlers for each in h.body), *node.orelse])


def is_main_guard(node: ast.stmt) -> bool:
    """Whether a statement is `if __name__ == "__main__":`, in whatever form."""
    return isinstance(node, ast.If) and any(
        isinstance(each, ast.Name) and each.id == "__name__" for each in ast.walk(node.test)
    )
