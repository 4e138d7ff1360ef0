"""Rotary: patches of rotary positions, which rotate what was forgotten and take away only what is one too many."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from headwise.diagnosis.patches.expressions import called, receiver, with_argument
from headwise.diagnosis.suspects import Suspect
from headwise.source import Code, Edit, Edits, Span, code_at

__all__ = ["resigned", "rotated"]

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class RotationPath(NamedTuple):
    """From a rotation to the scores. calls: all that rotate the side; meets: the calls by which it gets to the scores,
    from the outside in; place: of the other side among their operands; turns: the calls around the last operation.
    """

    place: int
    meets: tuple[Span, ...]
    turns: tuple[Span, ...]
    calls: tuple[Span | None, ...]


def rotated(code: Code, suspect: Suspect, *, way: RotationPath | None = None) -> Iterator[Edits]:
    """The edits for a rotation that only one of queries and keys gets, that values get, or that one of them gets twice.

    code: the call that rotates. way: from there to the scores; None: it is not known.
    """
    if way is not None:
        yield from _added(code, suspect, way)
    if suspect.kind in ("rotary-on-values", "rotary-twice") and isinstance(code.node, ast.Call) and code.node.args:
        yield (code.edit(code.node, code.bracketed(code.node.args[0])),)


def resigned(code: Code, _: Suspect, *, signs: Sequence[tuple[int, int]]) -> Iterator[Edits]:
    """The parts of a rotation joined with other signs and in another order. signs: of each part, by its place; empty:
    they are not known.
    """
    node = code.node
    if not signs:
        return
    if isinstance(node, ast.BinOp):
        yield (code.edit(node, f"{code.of(node.left)} {'+' if signs[1][1] > 0 else '-'} {code.bracketed(node.right)}"),)
    parts = node.args[0] if isinstance(node, ast.Call) and node.args else None
    if isinstance(parts, ast.List | ast.Tuple) and len(parts.elts) == len(signs):
        text = ", ".join(_signed(code, parts.elts[at], sign) for at, sign in signs)
        yield (code.edit(parts, f"[{text}]" if isinstance(parts, ast.List) else f"({text})"),)


def _signed(code: Code, node: ast.expr, sign: int) -> str:
    if sign > 0:
        return code.of(node)
    is_minus = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
    return code.of(node.operand) if is_minus and isinstance(node, ast.UnaryOp) else f"-{code.bracketed(node)}"


def _added(code: Code, suspect: Suspect, way: RotationPath) -> Iterator[Edits]:
    """The rotation of the side that has none, as the other side has it."""
    home = code_at(suspect.home)
    if home is not None:
        yield from _in_helper(home, way)
        return
    spans = [span for span in way.meets if suspect.span and span.function == suspect.span.function]
    product = code_at(spans[-1]) if spans else None
    if product is None or not isinstance(code.node, ast.Call) or not code.node.args:
        return
    names = [_root(each) for each in _operands(product.node)]
    lacking, rotating = (names[way.place], names[1 - way.place]) if len(names) > 1 else ("", "")
    is_own = next((argument for argument in code.node.args if _root(argument) == rotating), code.node.args[0])
    statement = next((outer for outer in code.around(code.node) if isinstance(outer, ast.stmt)), None)
    if not lacking or not isinstance(statement, ast.stmt):
        return
    if _sets(statement, _root(is_own)):
        text = _renamed(code, statement, _root(is_own), lacking)
        if len(way.calls) > 1 or suspect.kind == "rotary-on-values":
            # what rotates a second time, or what should not be rotated, was meant for the other
            yield (code.edit(statement, text),)
        else:
            line, end = code.edit(statement, ""), statement.end_lineno or statement.lineno
            yield (Edit(end, line.end_column, end, line.end_column, f"\n{' ' * statement.col_offset}{text}"),)
    if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Tuple):
        bare = [element for element in statement.value.elts if isinstance(element, ast.Name) and element.id == lacking]
        yield from ((code.edit(each, with_argument(code, is_own, lacking)),) for each in bare[:1])
    values = [each for each in _before(code, product.node) if _sets(each, lacking)]
    for node in values[-1:]:
        if isinstance(node, ast.Assign):
            yield (code.edit(node.value, with_argument(code, is_own, code.of(node.value))),)
    for operand in _operands(product.node)[way.place : way.place + 1]:
        used = [each for each in ast.walk(operand) if _root(each) == lacking and not isinstance(each, ast.Call)]
        bare_names = [each for each in used if isinstance(each, ast.Name)]
        yield from ((product.edit(name, with_argument(code, is_own, lacking)),) for name in bare_names[:1])


def _in_helper(home: Code, way: RotationPath) -> Iterator[Edits]:
    """In a function that rotates one of its arguments and hands on another as it is: that one rotated alike."""
    function = next((each for each in home.around(home.node) if isinstance(each, FUNCTIONS)), None)
    value = home.node.value if isinstance(home.node, ast.Assign | ast.Return) else None
    if function is None or value is None:
        return
    parameters = {argument.arg for argument in function.args.args}
    parts = value.elts if isinstance(value, ast.Tuple) else [value]
    lacking = next((part for part in parts if isinstance(part, ast.Name) and part.id in parameters), None)
    for span in reversed(way.turns):
        turning = code_at(span)
        if lacking is None or turning is None or not _is_within(turning, home, function):
            continue
        outward = [turning.node, *turning.around(turning.node)]
        # the largest expression that is no tuple of several
        whole = [part for part in outward if isinstance(part, ast.expr) and not isinstance(part, ast.Tuple)
                 and function.lineno <= part.lineno]  # fmt: skip
        if not whole:
            continue
        used = [each for each in ast.walk(whole[-1]) if isinstance(each, ast.Name) and each.id in parameters]
        used.sort(key=lambda node: (node.lineno, node.col_offset))
        if used:
            yield (home.edit(lacking, _renamed(turning, whole[-1], used[0].id, lacking.id)),)
            return


def _is_within(code: Code, home: Code, function: ast.AST) -> bool:
    line, end = getattr(function, "lineno", 0), getattr(function, "end_lineno", 0)
    return code.file == home.file and line <= getattr(code.node, "lineno", 0) <= end


def _operands(node: ast.AST) -> list[ast.expr]:
    """The queries and the keys of a product, or of a call that is given both."""
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    if not isinstance(node, ast.Call):
        return []
    if called(node) == "einsum":
        return node.args[1:3]
    named = [keyword.value for keyword in node.keywords if keyword.arg in ("q", "k", "query", "key")]
    whose = receiver(node) if called(node) in ("matmul", "bmm") else None
    return [*([] if whose is None else [whose]), *node.args, *named][:2]


def _root(node: ast.AST) -> str:
    """The name that an expression begins with; "": it begins with no name."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _sets(statement: ast.AST, name: str) -> bool:
    """Whether a statement gives that name alone, or a part of it, a value."""
    goals = statement.targets if isinstance(statement, ast.Assign) else []
    return len(goals) == 1 and bool(name) and not isinstance(goals[0], ast.Tuple) and _root(goals[0]) == name


def _before(code: Code, node: ast.AST) -> Iterator[ast.AST]:
    """The statements of the function around a node that stand before it, in their order."""
    function = next((outer for outer in code.around(node) if isinstance(outer, FUNCTIONS)), None)
    every = [] if function is None else [each for each in ast.walk(function) if isinstance(each, ast.stmt)]
    return iter(sorted((each for each in every if each.lineno < getattr(node, "lineno", 0)), key=lambda e: e.lineno))


def _renamed(code: Code, node: ast.AST, old: str, new: str) -> str:
    """The text of a node with one name in place of another."""
    start = code.edit(node, "")
    lines = code.of(node).split("\n")
    places = [code.edit(each, "") for each in ast.walk(node) if isinstance(each, ast.Name) and each.id == old]
    for place in sorted(places, key=lambda edit: (edit.line, edit.column), reverse=True):
        at, shift = place.line - start.line, start.column if place.line == start.line else 0
        line = lines[at]
        lines[at] = line[: place.column - shift] + new + line[place.end_column - shift :]
    return "\n".join(lines)
