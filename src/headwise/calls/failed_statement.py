"""Failed statements: where in a person's own code a call failed, and what its names held there."""

from __future__ import annotations

import ast
import linecache
import textwrap
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import FrameType
from typing import Any

__all__ = ["FailedStatement", "own_frames", "place"]

FOREIGN = ("torch", "einops", "headwise", "numpy")


@dataclass(frozen=True)
class FailedStatement:
    """Where in a person's own code a call failed: the statement, what its names hold, and what was handed over.

    tests: what was asked before it, the last first.
    """

    statement: ast.AST
    names: Mapping[str, Any]
    options: Mapping[str, Any]
    tests: tuple[ast.AST, ...] = ()

    @property
    def arguments(self) -> list[str]:
        """The arguments of the call that the statement names, under whatever name."""
        operands = [self.names.get(each.id) for each in ast.walk(self.statement) if isinstance(each, ast.Name)]
        return [name for name, value in self.options.items() if any(value is operand for operand in operands)]


def own_frames(error: BaseException) -> list[tuple[FrameType, int]]:
    """The frames of an error that are in no library, the last one last, and the line that each was at."""
    frames = traceback.walk_tb(error.__traceback__)
    return [each for each in frames if str(each[0].f_globals.get("__name__", "")).split(".")[0] not in FOREIGN]


def place(error: BaseException, options: Mapping[str, Any]) -> FailedStatement:
    """Where an error came from, as far as code that no library wrote tells."""
    frames = own_frames(error)
    if not frames:
        return FailedStatement(ast.Pass(), {}, options)
    frame, line = frames[-1]
    around = _around(frame, line)
    statement = around[0] if around else ast.Pass()
    tests = [each.test for each in around if isinstance(each, ast.If)]
    return FailedStatement(statement, dict(frame.f_locals), options, tuple(tests))


def _around(frame: FrameType, line: int) -> list[ast.stmt]:
    """The statements that a line is of, the smallest first."""
    code = frame.f_code
    lines = linecache.getlines(code.co_filename, frame.f_globals)
    return sorted(_within(_tree("".join(lines)), line), key=lambda node: (node.end_lineno or 0) - node.lineno)


# a call is tried a hundred times, and a file that is read anew each time is most of the work
@lru_cache(maxsize=4)
def _tree(text: str) -> ast.AST:
    try:
        return ast.parse(textwrap.dedent(text))
    except (SyntaxError, ValueError):
        return ast.Module([], [])


def _within(node: ast.AST, line: int) -> Iterator[ast.stmt]:
    """The statements below a node that a line is of."""
    for child in ast.iter_child_nodes(node):
        is_around = not isinstance(child, ast.stmt) or child.lineno <= line <= (child.end_lineno or child.lineno)
        if is_around and not isinstance(child, ast.expr):
            if isinstance(child, ast.stmt):
                yield child
            yield from _within(child, line)
