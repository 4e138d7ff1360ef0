"""No ops: an edit that would leave a statement that does nothing, as x = x, takes the statement away."""

from __future__ import annotations

import ast
import textwrap

from headwise.source import Code, Edit, Edits, applied

__all__ = ["without_idle"]


def without_idle(code: Code, edits: Edits) -> Edits:
    """The same edits; in place of one that makes a statement idle, one without it."""
    return tuple(_taken_away(code, each) or each for each in edits)


def _taken_away(code: Code, edit: Edit) -> Edit | None:
    """The statement of an edit gone, with an if that then holds nothing; None: it does something still."""
    own = [each for each in code.nodes(lambda node: isinstance(node, ast.stmt)) if _holds(code, each, edit)]
    statement = own[-1] if own else None
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
    own = code.edit(node, "")
    starts = (own.line, own.column) <= (edit.line, edit.column)
    return starts and (edit.end_line, edit.end_column) <= (own.end_line, own.end_column)


def _is_idle(text: str) -> bool:
    """Whether a statement does nothing: it gives a name what it has, or is nothing at all."""
    try:
        body = ast.parse(textwrap.dedent(text)).body
    except SyntaxError:
        return False
    node = body[0] if len(body) == 1 else None
    if isinstance(node, ast.Assign):
        return all(ast.unparse(each) == ast.unparse(node.value) for each in node.targets)
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
    calls = any(isinstance(each, ast.Call | ast.NamedExpr | ast.Await) for each in ast.walk(parent.test))
    return None if calls else parent


def _is_else(code: Code, node: ast.If) -> bool:
    """Whether an if is an elif, which is no statement by itself."""
    return code.lines[node.lineno - 1].lstrip().startswith("elif")


def _gone(code: Code, statement: ast.stmt) -> Edit:
    """A statement taken away with its lines; what holds nothing else, or shares its line, is left a pass."""
    own, parent = code.edit(statement, ""), next(code.around(statement), None)
    blocks = [getattr(parent, name, None) for name in ("body", "orelse", "finalbody")]
    is_alone = any(block == [statement] for block in blocks)
    before = code.lines[own.line - 1][: own.column]
    after = code.lines[own.end_line - 1][own.end_column :].strip()
    if is_alone or before.strip() or (after and not after.startswith("#")):
        return Edit(own.line, own.column, own.end_line, own.end_column, "pass")
    return Edit(own.line, 0, own.end_line + 1, 0, "")
