"""Failed statements: where in a person's own code a call failed, and what its names held there."""

from __future__ import annotations

import ast
import linecache
import textwrap
import traceback
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import FrameType
from typing import Any

from headwise.calls.argument_origins import Origins

__all__ = ["FailedStatement", "own_frames", "place", "statements_at"]

# the shape of a tensor, and the arguments that it comes of
Operand = tuple[tuple[int, ...], frozenset[str]]
FOREIGN = ("torch", "einops", "headwise", "numpy")


@dataclass(frozen=True)
class FailedStatement:
    """Where in a person's own code a call failed: the statement, what its names hold, and what was handed over.

    tests: what was asked before it, the last first. operands: of the operation that failed, the shape of each tensor
    and the arguments that it comes of; behind: the arguments that what it names comes of. left_out: arguments that are
    None which the statements name that led to it, those first that were asked for.
    """

    statement: ast.AST
    names: Mapping[str, Any]
    options: Mapping[str, Any]
    tests: tuple[ast.AST, ...] = ()
    operands: tuple[Operand, ...] = ()
    behind: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def arguments(self) -> list[str]:
        """The arguments of the call that the statement names, under whatever name."""
        operands = [self.names.get(node.id) for node in ast.walk(self.statement) if isinstance(node, ast.Name)]
        return [name for name, value in self.options.items() if any(value is operand for operand in operands)]

    @property
    def compared(self) -> Iterator[tuple[int, int, bool]]:
        """The pairs of whole numbers that were asked to be equal, or to have no remainder (True), and are not so."""
        asked = [self.statement.test] if isinstance(self.statement, ast.Assert) else self.tests[:1]
        for node in (node for each in asked for node in ast.walk(each) if isinstance(node, ast.Compare)):
            sides, is_divided = (node.left, node.comparators[0]), False
            if isinstance(node.left, ast.BinOp) and isinstance(node.left.op, ast.Mod):
                sides, is_divided = (node.left.left, node.left.right), True
            a, b = map(self._value_of, sides)
            if type(a) is int and type(b) is int and b and (a % b if is_divided else a != b):
                yield a, b, is_divided

    def _value_of(self, node: ast.expr) -> Any:
        """What an expression is where the call failed; None: that is not known."""
        try:
            return eval(compile(ast.Expression(node), "<asked>", "eval"), {}, dict(self.names))
        except Exception:  # noqa: BLE001  a name that is not there, or whatever the person's own code raises
            return None


def own_frames(error: BaseException) -> list[tuple[FrameType, int]]:
    """The frames of an error that are in no library, the last one last, and the line that each was at."""
    frames = traceback.walk_tb(error.__traceback__)
    return [frame for frame in frames if str(frame[0].f_globals.get("__name__", "")).split(".")[0] not in FOREIGN]


def place(error: BaseException, options: Mapping[str, Any], origins: Origins) -> FailedStatement:
    """Where an error came from, as far as code that no library wrote tells. origins: of the tensors of the call."""
    operands = origins.operands if error is origins.error else ()
    behind = [name for _, names in operands for name in names]
    frames = own_frames(error)
    if not frames:
        return FailedStatement(ast.Pass(), {}, options, (), operands, _in_order(options, behind))
    frame, line = frames[-1]
    around = statements_at(frame, line)
    statement = around[0] if around else ast.Pass()
    tests = [outer.test for outer in around if isinstance(outer, ast.If)]
    named = [frame.f_locals.get(node.id) for node in ast.walk(statement) if isinstance(node, ast.Name)]
    behind = behind or [name for value in named for name in origins.of(value)]
    return FailedStatement(
        statement, dict(frame.f_locals), options, tuple(tests), operands, _in_order(options, behind),
        tuple(_left_out(*frames[0])),
    )  # fmt: skip


def _left_out(frame: FrameType, line: int) -> Iterator[str]:
    """The parameters of a function that are None and named in the statement at a line, or in what was asked before."""
    around, code = statements_at(frame, line), frame.f_code
    tests = [outer.test for outer in around if isinstance(outer, ast.If)]
    parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    for node in (node for each in [*tests, *around[:1]] for node in ast.walk(each)):
        if isinstance(node, ast.Name) and node.id in parameters and frame.f_locals.get(node.id, node) is None:
            yield node.id


def _in_order(options: Mapping[str, Any], names: Collection[str]) -> tuple[str, ...]:
    return tuple(name for name in options if name in names)


def statements_at(frame: FrameType, line: int) -> list[ast.stmt]:
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
