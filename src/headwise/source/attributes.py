"""Attributes: where in a class a number, a module or a tensor that an operation takes from `self` was made."""

from __future__ import annotations

import ast
import linecache
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from headwise.source.spans import Span

__all__ = ["Fits", "written_in"]

# whether a value is the one that is looked for
Fits = Callable[[Any], bool]


def written_in(target: Any, span: Span, fits: Fits, *, is_number: bool = False) -> Span | None:
    """The statement that made what an operation takes, where it takes it by name; None: it is written in place.

    target: the module that ran. span: of the operation. fits: told the values of attributes. is_number: a number is
    looked for, which may be local.
    """
    if not isinstance(target, nn.Module):
        return None
    for node in _operands(span):
        found = _made(target, span, node, fits, is_number)
        if found is not None and (found.file, found.line) != (span.file, span.line):
            return found
    return None


def _operands(span: Span) -> Iterator[ast.expr]:
    """What an operation takes, as it is written."""
    try:
        tree = ast.parse(f"({textwrap.dedent(span.source).strip()})", mode="eval").body
    except (SyntaxError, ValueError):
        return
    if isinstance(tree, ast.BinOp):
        yield from (tree.left, tree.right)
    elif isinstance(tree, ast.Compare):
        yield from (tree.left, *tree.comparators)
    elif isinstance(tree, ast.Call):
        yield from (tree.func, *tree.args, *(each.value for each in tree.keywords))
        if isinstance(tree.func, ast.Attribute):
            yield tree.func.value
    elif isinstance(tree, ast.Subscript):
        yield tree.value


def _made(target: nn.Module, span: Span, node: ast.expr, fits: Fits, is_number: bool) -> Span | None:
    while isinstance(node, ast.Subscript | ast.Compare):
        node = node.value if isinstance(node, ast.Subscript) else node.left
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not node.args:
        # self.mask.bool()
        node = node.func.value
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        owners = [each for each in target.modules() if _holds(each, node.attr, fits)]
        kind = span.function.rpartition(".")[0]
        owner = next((each for each in owners if type(each).__qualname__ == kind), next(iter(owners), None))
        return None if owner is None else _assigned(target, owner, node.attr)
    if isinstance(node, ast.Name) and node.id != "self":
        return _local(target, span, node.id, fits, is_number)
    return None


def _holds(module: nn.Module, name: str, fits: Fits) -> bool:
    return hasattr(module, name) and fits(getattr(module, name))


@dataclass(frozen=True)
class _Code:
    """A function of the person's as a tree. first: the line before its own."""

    tree: ast.AST
    file: str
    function: str
    first: int

    def span(self, node: ast.stmt | ast.expr) -> Span:
        """Where a part of it stands."""
        end = (node.end_lineno or node.lineno) + self.first
        return Span(self.file, self.function, node.lineno + self.first, node.col_offset, end, node.end_col_offset)


def _methods(kind: type) -> Iterator[_Code]:
    """The methods of a class and of those that it inherits from, constructors first."""
    for each in kind.__mro__:
        if each is nn.Module or each is object:
            continue
        own = sorted(vars(each).items(), key=lambda item: item[0] != "__init__")
        for _, function in own:
            code = getattr(function, "__code__", None)
            found = None if code is None else _code(code.co_filename, code.co_qualname, code.co_firstlineno)
            if found is not None:
                yield found


def _code(file: str, function: str, line: int) -> _Code | None:
    import inspect

    lines = linecache.getlines(file)
    if not lines or line > len(lines):
        return None
    block = inspect.getblock(lines[line - 1 :])
    try:
        return _Code(ast.parse("if True:\n" + "".join(block)), file, function, line - 2)
    except (SyntaxError, ValueError):
        return None


def _assigned(target: nn.Module, owner: nn.Module, name: str) -> Span | None:
    """The statement that gives a module an attribute, or the call that hands its constructor the value."""
    for code in _methods(type(owner)):
        for node in ast.walk(code.tree):
            if isinstance(node, ast.Expr) and _registers(node.value, name):
                handed = node.value.args[1] if isinstance(node.value, ast.Call) and len(node.value.args) > 1 else None
                made = _before(code, handed.id, node.lineno) if isinstance(handed, ast.Name) else None
                return made or code.span(node)
            value = _value(node, name)
            if value is None or not isinstance(node, ast.stmt):
                continue
            if isinstance(value, ast.Name):
                return _handed(target, owner, value.id) or _before(code, value.id, node.lineno)
            return code.span(node)
    return None


def _value(node: ast.AST, name: str) -> ast.expr | None:
    """What a statement gives an attribute of `self`; None: it gives it nothing."""
    if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
        return None
    for goal in node.targets if isinstance(node, ast.Assign) else [node.target]:
        if isinstance(goal, ast.Tuple) and isinstance(node.value, ast.Tuple):
            for each, value in zip(goal.elts, node.value.elts, strict=False):
                if _is_self(each, name):
                    return value
        elif _is_self(goal, name) or (isinstance(goal, ast.Tuple) and any(_is_self(each, name) for each in goal.elts)):
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


def _before(code: _Code, name: str, line: int) -> Span | None:
    """The last statement before a line that gives a local name its value."""
    found = [
        node
        for node in ast.walk(code.tree)
        if isinstance(node, ast.Assign)
        and node.lineno < line
        and any(isinstance(each, ast.Name) and each.id == name for each in node.targets)
    ]
    return code.span(max(found, key=lambda node: node.lineno)) if found else None


def _handed(target: nn.Module, owner: nn.Module, name: str) -> Span | None:
    """The call of a constructor that makes the value of its parameter; None: it has it from elsewhere."""
    parents = [each for each in target.modules() if any(child is owner for child in each.children())]
    for parent in parents:
        for code in _methods(type(parent)):
            calls = [
                node
                for node in ast.walk(code.tree)
                if isinstance(node, ast.Call)
                and type(owner).__name__ in (getattr(node.func, "id", ""), getattr(node.func, "attr", ""))
            ]
            for node in calls:
                value = next((each.value for each in node.keywords if each.arg == name), None)
                if value is None and len(node.args) == 1 and not node.keywords:
                    value = node.args[0]
                if value is not None and not isinstance(value, ast.Name | ast.Constant | ast.Attribute):
                    return code.span(node)
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
        is_plain = all(_is_number(each) or isinstance(each, ast.Name | ast.Attribute) for each in sides)
        return isinstance(node.op, ast.Mult | ast.Div) and is_plain and any(map(_is_number, sides))
    return False


def _local(target: nn.Module, span: Span, name: str, fits: Fits, is_number: bool) -> Span | None:
    """Where a function gave a local name the value that it then uses, if it is made of plain numbers."""
    for module in target.modules():
        for code in _methods(type(module)):
            if code.function != span.function:
                continue
            found = [
                node
                for node in ast.walk(code.tree)
                if isinstance(node, ast.Assign)
                and node.lineno + code.first < span.line
                and any(isinstance(each, ast.Name) and each.id == name for each in node.targets)
            ]
            if not found:
                return None
            last = max(found, key=lambda node: node.lineno)
            # what it was made of has a value of before, even where it has the same name
            earlier = replace(span, line=last.lineno + code.first)
            is_name = isinstance(last.value, ast.Name)
            found_there = None if is_name else _made(target, earlier, last.value, fits, is_number)
            return found_there or (code.span(last) if is_number and _is_number(last.value) else None)
    return None
