"""Source file: the code of a target as plain data: texts, cells and definitions."""

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
    """A piece of Python. file: a key of Source.texts; code: its lines have the line numbers of that text."""

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
    """The code of a target. title: the target's path; texts: whole texts by the display name of their file."""

    title: str
    texts: dict[str, str]
    cells: tuple[Cell, ...]
    definitions: tuple[Definition, ...]


def parsed(code: str) -> ast.Module:
    """The syntax tree of code. Errors: SyntaxError, for nesting that is too deep as well."""
    with warnings.catch_warnings():
        # warnings about escapes such as "\d" do not matter here
        warnings.simplefilter("ignore")
        try:
            return ast.parse(code)
        except (RecursionError, MemoryError, ValueError) as error:
            raise SyntaxError(f"too deep or not text: {type(error).__name__}") from error


def checked(code: str) -> None:
    """Raise SyntaxError where code does not compile as a file, such as a return outside of a function."""
    tree = parsed(code)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            compile(tree, "<target>", "exec", dont_inherit=True)
        except (RecursionError, MemoryError) as error:
            raise SyntaxError(f"too deep: {type(error).__name__}") from error


def no_python(path: str, error: SyntaxError) -> Refusal:
    """The refusal of a file that is no Python, with the line and the column."""
    if error.lineno is None:
        return refusal("refuse.target_deep", path=path)
    return refusal("refuse.target_syntax", path=path, line=error.lineno, column=error.offset or 1, reason=error.msg)


def definitions(cells: Sequence[Cell]) -> tuple[Definition, ...]:
    """The classes and functions of cells, also inside of if, with and try; the last one of each name.

    A function whose first parameter is self is a loose method and does not count.
    """
    by_name: dict[str, Definition] = {}
    for cell in cells:
        for node in top_level(parsed(cell.code).body):
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and first_parameter(node) != "self":
                kind = "class" if isinstance(node, ast.ClassDef) else "function"
                by_name.pop(node.name, None)
                by_name[node.name] = Definition(node.name, kind, cell.file, node.lineno)
    return tuple(by_name.values())


def first_parameter(node: ast.stmt) -> str:
    """The name of the first parameter of a function; "": it has none, or is no function."""
    parameters = node.args.posonlyargs + node.args.args if isinstance(node, ast.FunctionDef) else []
    return parameters[0].arg if parameters else ""


def top_level(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """The top-level statements of a file, with those inside of if, try and with, without the main guard."""
    for node in body:
        yield node
        if isinstance(node, ast.If) and not is_main_guard(node):
            yield from top_level([*node.body, *node.orelse])
        elif isinstance(node, ast.With):
            yield from top_level(node.body)
        elif isinstance(node, ast.Try):
            yield from top_level(
                [*node.body, *(statement for h in node.handlers for statement in h.body), *node.orelse]
            )


def is_main_guard(node: ast.stmt) -> bool:
    """Whether a statement is `if __name__ == "__main__":`, in whatever form."""
    return isinstance(node, ast.If) and any(
        isinstance(part, ast.Name) and part.id == "__name__" for part in ast.walk(node.test)
    )
