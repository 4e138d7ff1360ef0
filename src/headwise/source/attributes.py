"""Attributes: the statement of a class that makes the number, module or tensor that an operation reads from `self`."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from torch import nn

from headwise.source.methods import Method, methods
from headwise.source.spans import Span

__all__ = ["Fits", "written_in"]

# whether a value is the wanted one
Fits = Callable[[Any], bool]


def written_in(target: Any, span: Span, fits: Fits, *, is_number: bool = False) -> Span | None:
    """The statement that makes the operand of an operation, where it is taken by name; None: it is written in place.

    target: the module that ran. span: of the operation. fits: is called with the values of attributes. is_number: the
    operand is a number, which may be a local variable.
    """
    if not isinstance(target, nn.Module):
        return None
    for node in _operands(span):
        origin = _origin(target, span, node, fits, is_number)
        if origin is not None and (origin.file, origin.line) != (span.file, span.line):
            return origin
    return None


def _operands(span: Span) -> Iterator[ast.expr]:
    """The operands of an operation, as expressions."""
    try:
        tree = ast.parse(f"({textwrap.dedent(span.source).strip()})", mode="eval").body
    except (SyntaxError, ValueError):
        return
    if isinstance(tree, ast.BinOp):
        yield from (tree.left, tree.right)
    elif isinstance(tree, ast.Compare):
        yield from (tree.left, *tree.comparators)
    elif isinstance(tree, ast.Call):
        yield from (tree.func, *tree.args, *(keyword.value for keyword in tree.keywords))
        if isinstance(tree.func, ast.Attribute):
            yield tree.func.value
    elif isinstance(tree, ast.Subscript):
        yield tree.value


def _origin(target: nn.Module, span: Span, node: ast.expr, fits: Fits, is_number: bool) -> Span | None:
    node = _bare(node)
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        owners = [module for module in target.modules() if _holds(module, node.attr, fits)]
        kind = span.function.rpartition(".")[0]
        owner = next((each for each in owners if type(each).__qualname__ == kind), next(iter(owners), None))
        return None if owner is None else _assigned(target, owner, node.attr)
    if isinstance(node, ast.Name) and node.id != "self":
        return _local(target, span, node.id, fits, is_number)
    return None


def _bare(node: ast.expr) -> ast.expr:
    """What an expression takes a part of, compares, negates or casts: `self.mask` in `~self.mask[:n, :n].bool()`."""
    while True:
        if isinstance(node, ast.Subscript):
            node = node.value
        elif isinstance(node, ast.Compare):
            node = node.left
        elif isinstance(node, ast.UnaryOp):
            node = node.operand
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not node.args:
            node = node.func.value
        else:
            return node


def _holds(module: nn.Module, name: str, fits: Fits) -> bool:
    return hasattr(module, name) and fits(getattr(module, name))


def _assigned(target: nn.Module, owner: nn.Module, name: str) -> Span | None:
    """The statement that assigns an attribute of a module, or the constructor call that passes the value."""
    for method in methods(type(owner)):
        for node in ast.walk(method.tree):
            if isinstance(node, ast.Expr) and _registers(node.value, name):
                given = node.value.args[1:2] if isinstance(node.value, ast.Call) else []
                argument = _bare(given[0]) if given else None
                local = _before(method, argument.id, node.lineno) if isinstance(argument, ast.Name) else None
                return local or method.span(node)
            value = _value(node, name)
            if value is None or not isinstance(node, ast.stmt):
                continue
            if isinstance(value, ast.Name):
                return _handed(target, owner, value.id) or _before(method, value.id, node.lineno)
            return method.span(node)
    return None


def _value(node: ast.AST, name: str) -> ast.expr | None:
    """The value that a statement assigns to an attribute of `self`; None: it assigns none."""
    if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
        return None
    for goal in node.targets if isinstance(node, ast.Assign) else [node.target]:
        if isinstance(goal, ast.Tuple) and isinstance(node.value, ast.Tuple):
            for part, value in zip(goal.elts, node.value.elts, strict=False):
                if _is_self(part, name):
                    return value
        elif _is_self(goal, name) or (isinstance(goal, ast.Tuple) and any(_is_self(part, name) for part in goal.elts)):
            return node.value
    return None


def _is_self(node: ast.expr, name: str) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and node.attr == name
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    )


def _registers(node: ast.expr, name: str) -> bool:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not node.args:
        return False
    first = node.args[0]
    return node.func.attr.startswith("register_") and isinstance(first, ast.Constant) and first.value == name


def _before(method: Method, name: str, line: int) -> Span | None:
    """The last assignment of a local name before a line."""
    assignments = [
        node
        for node in ast.walk(method.tree)
        if isinstance(node, ast.Assign)
        and node.lineno < line
        and any(isinstance(target, ast.Name) and target.id == name for target in node.targets)
    ]
    return method.span(max(assignments, key=lambda node: node.lineno)) if assignments else None


def _handed(target: nn.Module, owner: nn.Module, name: str) -> Span | None:
    """The constructor call of a module that computes the argument of a parameter; None: no parent computes it."""
    parents = [module for module in target.modules() if any(child is owner for child in module.children())]
    for parent in parents:
        for method in methods(type(parent)):
            calls = [
                node
                for node in ast.walk(method.tree)
                if isinstance(node, ast.Call)
                and type(owner).__name__ in (getattr(node.func, "id", ""), getattr(node.func, "attr", ""))
            ]
            for node in calls:
                value = next((keyword.value for keyword in node.keywords if keyword.arg == name), None)
                if value is None and len(node.args) == 1 and not node.keywords:
                    value = node.args[0]
                if value is not None and not isinstance(value, ast.Name | ast.Constant | ast.Attribute):
                    return method.span(node)
    return None


def _is_number(node: ast.expr) -> bool:
    """Whether an expression is a number by its form: a power, a root, a constant, or a product with one."""
    if isinstance(node, ast.UnaryOp):
        return _is_number(node.operand)
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int | float)
    if isinstance(node, ast.Call):
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        return called in ("sqrt", "pow", "rsqrt")
    if isinstance(node, ast.BinOp):
        if isinstance(node.op, ast.Pow):
            return True
        sides = (node.left, node.right)
        is_plain = all(_is_number(side) or isinstance(side, ast.Name | ast.Attribute) for side in sides)
        return isinstance(node.op, ast.Mult | ast.Div) and is_plain and any(map(_is_number, sides))
    return False


def _local(target: nn.Module, span: Span, name: str, fits: Fits, is_number: bool) -> Span | None:
    """The assignment of a local name that an operation reads, if its value is made of plain numbers."""
    for module in target.modules():
        for method in methods(type(module)):
            if method.code.co_qualname != span.function:
                continue
            assignments = [
                node
                for node in ast.walk(method.tree)
                if isinstance(node, ast.Assign)
                and node.lineno < span.line
                and any(isinstance(each, ast.Name) and each.id == name for each in node.targets)
            ]
            if not assignments:
                return None
            last = max(assignments, key=lambda node: node.lineno)
            # the names on the right side have the values from before this line
            earlier = replace(span, line=last.lineno)
            is_name = isinstance(last.value, ast.Name)
            origin = None if is_name else _origin(target, earlier, last.value, fits, is_number)
            return origin or (method.span(last) if is_number and _is_number(last.value) else None)
    return None
