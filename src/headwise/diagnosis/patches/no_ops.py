"""No ops: a statement that an edit leaves idle, as x = x, goes; an edit that drops other operations is refused."""

from __future__ import annotations

import ast
import textwrap

from headwise.diagnosis.patches.expressions import called
from headwise.diagnosis.suspects import Suspect
from headwise.source import Code, Edit, Edits, applied

__all__ = ["removes", "without_idle"]

# how a tensor is laid out, and what it is asked for, is no part of what code computes
LAYOUT = frozenset({
    "view", "reshape", "transpose", "permute", "contiguous", "flatten", "unflatten", "swapaxes", "movedim", "expand",
    "rearrange", "split", "chunk", "unbind", "squeeze", "unsqueeze", "mT", "size", "len", "int",
})  # fmt: skip


def without_idle(code: Code, edits: Edits) -> Edits:
    """The same edits; in place of one that makes a statement idle, one without it."""
    return tuple(_taken_away(code, edit) or edit for edit in edits)


def _taken_away(code: Code, edit: Edit) -> Edit | None:
    """The statement of an edit gone, with an if that then holds nothing; None: it does something still."""
    statements = [each for each in code.nodes(lambda node: isinstance(node, ast.stmt)) if _holds(code, each, edit)]
    statement = statements[-1] if statements else None
    if not isinstance(statement, ast.Assign | ast.AugAssign | ast.Expr):
        return None
    whole = code.edit(statement, "")
    start, end = (whole.column if line == whole.line else 0 for line in (edit.line, edit.end_line))
    first = whole.line - 1
    place = Edit(edit.line - first, edit.column - start, edit.end_line - first, edit.end_column - end, edit.text)
    if not _is_idle(applied(code.of(statement), [place])):
        return None
    return _gone(code, _outermost(code, statement))


def _holds(code: Code, node: ast.AST, edit: Edit) -> bool:
    place = code.edit(node, "")
    starts = (place.line, place.column) <= (edit.line, edit.column)
    return starts and (edit.end_line, edit.end_column) <= (place.end_line, place.end_column)


def _is_idle(text: str) -> bool:
    """Whether a statement does nothing: it gives a name what it has, or is nothing at all."""
    try:
        body = ast.parse(textwrap.dedent(text)).body
    except SyntaxError:
        return False
    node = body[0] if len(body) == 1 else None
    if isinstance(node, ast.Assign):
        return all(ast.unparse(target) == ast.unparse(node.value) for target in node.targets)
    return not body or isinstance(node, ast.Pass)


def _outermost(code: Code, statement: ast.stmt) -> ast.stmt:
    """A statement with the ifs that hold nothing else."""
    around = _alone_in(code, statement)
    return statement if around is None else _outermost(code, around)


def _alone_in(code: Code, statement: ast.stmt) -> ast.If | None:
    """The if of which a statement is all, and whose test calls nothing; None: there is none."""
    parent = next(code.around(statement), None)
    if not isinstance(parent, ast.If) or parent.body != [statement] or parent.orelse or _is_else(code, parent):
        return None
    calls = any(isinstance(node, ast.Call | ast.NamedExpr | ast.Await) for node in ast.walk(parent.test))
    return None if calls else parent


def _is_else(code: Code, node: ast.If) -> bool:
    """Whether an if is an elif, which is no statement by itself."""
    return code.lines[node.lineno - 1].lstrip().startswith("elif")


def _gone(code: Code, statement: ast.stmt) -> Edit:
    """A statement taken away with its lines; what holds nothing else, or shares its line, is left a pass."""
    place, parent = code.edit(statement, ""), next(code.around(statement), None)
    blocks = [getattr(parent, name, None) for name in ("body", "orelse", "finalbody")]
    is_alone = any(block == [statement] for block in blocks)
    before = code.lines[place.line - 1][: place.column]
    after = code.lines[place.end_line - 1][place.end_column :].strip()
    if is_alone or before.strip() or (after and not after.startswith("#")):
        return Edit(place.line, place.column, place.end_line, place.end_column, "pass")
    return Edit(place.line, 0, place.end_line + 1, 0, "")


def removes(code: Code, edits: Edits, suspect: Suspect) -> bool:
    """Whether a file has fewer operations with these edits although none of them is what the suspect blames."""
    if suspect.fault.removes:
        return False
    before = "".join(code.lines)
    try:
        return _count(applied(before, edits)) < _count(before)
    except SyntaxError:
        # it is refused where it is loaded
        return False


def _count(text: str) -> int:
    """Calls and arithmetic, but for the layout."""
    nodes = list(ast.walk(ast.parse(text)))
    calls = sum(isinstance(node, ast.Call) and called(node) not in LAYOUT for node in nodes)
    return calls + sum(isinstance(node, ast.BinOp | ast.AugAssign) for node in nodes)
