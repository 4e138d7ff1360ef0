"""Lookup: the statement that assigns the value of a name, in the same function or in one of its callers."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace

from headwise.source.picks import Pick
from headwise.source.spans import Span
from headwise.source.syntax import Code, code_at, file_tree

__all__ = [
    "alias_after",
    "assigned_pairs",
    "bound_to",
    "function_of",
    "is_left",
    "last_given",
    "loads_of",
    "made_at",
    "own_number",
    "returned",
    "span_like",
]

# calls that return a plain number
NUMBERS = frozenset({"finfo", "iinfo", "float", "int", "sqrt", "pow", "rsqrt", "size", "len"})


def made_at(span: Span, chain: Sequence[Span], pick: Pick) -> Span | None:
    """The source of the value that an operation takes by name; None: it is written in place, or is no plain number or
    choice.
    """
    code = code_at(span)
    if code is None:
        return None
    node = code.node
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
        # the written value is the other side of the statement
        node = next(code.around(node))
    parts = list(pick(node))
    # where a number stands here, a name beside it is not where it was made
    for part in parts if not any(map(is_plain, parts)) else ():
        origin = _followed(code, part, span, chain)
        if origin is not None and (origin.file, origin.line) != (span.file, span.line):
            return origin
    return None


def _followed(code: Code, part: ast.expr, span: Span, chain: Sequence[Span]) -> Span | None:
    """The assignment of a name, or the argument or default that is its value, through calls."""
    while isinstance(part, ast.Name):
        function = function_of(code, code.node)
        if function is None:
            return None
        before = last_given(function, part.id, span.line)
        if before is not None:
            if not isinstance(before.value, ast.Name):
                return span_like(code, before, span) if is_plain(before.value) else None
            part, span = before.value, replace(span, line=before.lineno)
            continue
        call = code_at(chain[-1]) if chain else None
        argument = _handed(function, part.id, None if call is None else call.node)
        if argument is None:
            default = _default(function, part.id)
            return None if default is None else span_like(code, default, span)
        if call is None:
            return None
        code, part, span, chain = call, argument, chain[-1], chain[:-1]
        if not isinstance(part, ast.Name):
            return span_like(code, part, span) if is_plain(part) else None
    return None


def is_plain(node: ast.expr) -> bool:
    """Whether an expression is a number or a choice, and no tensor, by its form."""
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        return name in NUMBERS
    if isinstance(node, ast.Attribute):
        return isinstance(node.value, ast.Name) or is_plain(node.value)
    if isinstance(node, ast.Subscript):
        return isinstance(node.value, ast.Attribute) and node.value.attr == "shape"
    if isinstance(node, ast.UnaryOp):
        return is_plain(node.operand)
    if isinstance(node, ast.BinOp):
        return all(is_plain(each) or isinstance(each, ast.Name) for each in (node.left, node.right))
    if isinstance(node, ast.IfExp):
        return is_plain(node.body) and is_plain(node.orelse)
    return isinstance(node, ast.Constant)


def own_number(span: Span) -> Span | None:
    """The assignment of the size in an operation's scale factor, where no other line reads that name."""
    code = code_at(span)
    function = None if code is None else function_of(code, code.node)
    if code is None or function is None or not isinstance(code.node, ast.BinOp | ast.Call):
        return None
    for part in (code.node.left, code.node.right) if isinstance(code.node, ast.BinOp) else code.node.args:
        names = [
            node for node in ast.walk(part) if isinstance(node, ast.Name) and node.id not in ("math", "torch", "np")
        ]
        is_number = isinstance(part, ast.BinOp | ast.Call) and _is_of_numbers(part)
        if len(names) != 1 or not is_number or len(loads_of(function, names[0].id)) != 1:
            continue
        before = last_given(function, names[0].id, span.line)
        if before is not None and is_plain(before.value) and before.lineno != span.line:
            return span_like(code, before, span)
    return None


def alias_after(span: Span, *, returns: bool = False) -> Span | None:
    """The later statement of the function that only assigns the value at a span to another name; None: there is none.

    returns: where no statement does, the one that returns the value unchanged.
    """
    place = _given_name(span)
    if place is None:
        return None
    code, function, statement, name = place
    for kind in (ast.Assign, ast.Return) if returns else (ast.Assign,):
        for node in ast.walk(function):
            is_alias = isinstance(node, kind) and isinstance(node.value, ast.Name) and node.value.id == name
            if is_alias and isinstance(node, kind) and node.lineno > statement.lineno:
                return span_like(code, node, span)
    return None


def is_left(span: Span) -> bool:
    """Whether the value at a span is assigned to a name that its function never reads."""
    place = _given_name(span)
    return place is not None and not loads_of(place[1], place[3])


def _given_name(span: Span) -> tuple[Code, ast.FunctionDef, ast.Assign, str] | None:
    """The code at a span, its function, the statement that assigns its value to a name, and that name."""
    code = code_at(span)
    function = None if code is None else function_of(code, code.node)
    if code is None or function is None:
        return None
    statement = next((outer for outer in (code.node, *code.around(code.node)) if isinstance(outer, ast.stmt)), None)
    if not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Name):
        return None
    return code, function, statement, statement.targets[0].id


def returned(file: str, node: ast.expr) -> Span | None:
    """The `return` of a list in a function of the file, where an expression is a call of that function; None: it is no
    such call.
    """
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return None
    tree = file_tree(file)
    if tree is None:
        return None
    name = node.func.id
    functions = [each for each in tree.body if isinstance(each, ast.FunctionDef) and each.name == name]
    for statement in ast.walk(functions[0]) if functions else ():
        if isinstance(statement, ast.Return) and statement.value is not None and _is_list(statement.value):
            code = Code(statement, file, tree)
            edit = code.edit(statement, "")
            return Span(file, name, edit.line, edit.column, edit.end_line, edit.end_column)
    return None


def _is_list(node: ast.expr) -> bool:
    """Whether an expression is a list or a repetition, plain or in a container."""
    if isinstance(node, ast.Call) and node.args:
        return _is_list(node.args[0])
    is_many = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)
    return is_many or isinstance(node, ast.List | ast.ListComp | ast.GeneratorExp | ast.Tuple | ast.DictComp)


def function_of(code: Code, node: ast.AST) -> ast.FunctionDef | None:
    """The innermost function around a node; None: there is none."""
    return next((outer for outer in code.around(node) if isinstance(outer, ast.FunctionDef)), None)


def last_given(function: ast.FunctionDef, name: str, line: int) -> ast.Assign | None:
    """The last assignment of a local name before a line; None: there is none, or it is no plain one."""
    statements = [
        node for node in ast.walk(function)
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.For) and node.lineno < line
        and any(isinstance(target, ast.Name) and isinstance(target.ctx, ast.Store) and target.id == name
                for goal in (node.targets if isinstance(node, ast.Assign) else [node.target])
                for target in ast.walk(goal))
    ]  # fmt: skip
    last = max(statements, key=lambda node: node.lineno, default=None)
    return last if isinstance(last, ast.Assign) and isinstance(last.targets[0], ast.Name) else None


def loads_of(function: ast.FunctionDef, name: str) -> list[ast.Name]:
    """The nodes of a function that read a name."""
    return [
        node for node in ast.walk(function)
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
    ]  # fmt: skip


def _handed(function: ast.FunctionDef, name: str, call: ast.AST | None) -> ast.expr | None:
    """The argument of a call for a parameter; None: the call has none, or it is unknown."""
    if not isinstance(call, ast.Call) or any(isinstance(argument, ast.Starred) for argument in call.args):
        return None
    by_name = next((keyword.value for keyword in call.keywords if keyword.arg == name), None)
    if by_name is not None:
        return by_name
    names = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
    names = names[1:] if names[:1] in (["self"], ["cls"]) else names
    place = names.index(name) if name in names else len(call.args)
    return call.args[place] if place < len(call.args) else None


def _default(function: ast.FunctionDef, name: str) -> ast.expr | None:
    names = [*function.args.posonlyargs, *function.args.args]
    defaults = dict(zip((each.arg for each in reversed(names)), reversed(function.args.defaults), strict=False))
    only = {each.arg: value for each, value in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)}
    return defaults.get(name) or only.get(name)


def _is_of_numbers(node: ast.expr) -> bool:
    """Whether an expression is a power or a root of a number, or a number beside one."""
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        return name in NUMBERS
    return isinstance(node, ast.BinOp) and (
        isinstance(node.op, ast.Pow) or any(isinstance(side, ast.BinOp | ast.Call) and _is_of_numbers(side)
                                            for side in (node.left, node.right))
    )  # fmt: skip


def span_like(code: Code, node: ast.AST, like: Span) -> Span:
    """The span of a node. like: a span in the same function."""
    edit = code.edit(node, "")
    return Span(code.file, like.function, edit.line, edit.column, edit.end_line, edit.end_column)


def bound_to(span: Span) -> Span | None:
    """The name or subscript that the last assignment of a call's argument reads; None: it reads neither."""
    code = code_at(span)
    function = None if code is None else function_of(code, code.node)
    if code is None or function is None or not isinstance(code.node, ast.Call):
        return None
    parts = [*code.node.args, *([code.node.func.value] if isinstance(code.node.func, ast.Attribute) else [])]
    names = {part.id for part in parts if isinstance(part, ast.Name)}
    assignments = [
        (node, goal, value)
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and node.lineno < span.line
        for goal, value in assigned_pairs(node)
        if isinstance(goal, ast.Name) and goal.id in names
    ]
    node, _, value = max(assignments, key=lambda assignment: assignment[0].lineno, default=(None, None, None))
    if node is None or not isinstance(value, ast.Name | ast.Subscript):
        return None
    return span_like(code, node if value is node.value else value, span)


def assigned_pairs(node: ast.Assign) -> list[tuple[ast.expr, ast.expr]]:
    """The targets of an assignment, each with its value: each of several names with its own, or with that of all."""
    out: list[tuple[ast.expr, ast.expr]] = []
    for goal in node.targets:
        goals = goal.elts if isinstance(goal, ast.Tuple) else [goal]
        is_alike = isinstance(goal, ast.Tuple) and isinstance(node.value, ast.Tuple)
        values = node.value.elts if is_alike and isinstance(node.value, ast.Tuple) else []
        out += zip(goals, values if len(values) == len(goals) else [node.value] * len(goals), strict=True)
    return out
