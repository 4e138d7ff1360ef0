"""Methods: the functions of a class in the trees of their files, and the statements there that assign parameters."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from types import CodeType

from torch import nn

from headwise.source.lookup import returned
from headwise.source.spans import Span
from headwise.source.syntax import Function, function_node

__all__ = ["Method", "assigned", "constructors", "kept", "methods", "registered"]


@dataclass(frozen=True)
class Method:
    """A method of user code. tree: its definition in the tree of its file."""

    code: CodeType
    tree: Function

    def span(self, node: ast.expr | ast.stmt) -> Span:
        """The place of a node in the file."""
        name, file = self.code.co_qualname, self.code.co_filename
        return Span(file, name, node.lineno, node.col_offset, node.end_lineno or node.lineno, node.end_col_offset)


def methods(kind: type) -> Iterator[Method]:
    """The methods of a class and of its bases, constructors first, where the source is readable."""
    for base in kind.__mro__:
        members = vars(base).items() if base not in (nn.Module, object) else ()
        for _, function in sorted(members, key=lambda item: item[0] != "__init__"):
            # decorators, as of torch.no_grad, stand around it
            code = getattr(inspect.unwrap(function) if callable(function) else function, "__code__", None)
            node = None if code is None else function_node(code)
            if code is not None and node is not None:
                yield Method(code, node)


def constructors(kind: type) -> Iterator[Method]:
    """The constructors of a class and of its bases, in their order, where the source is readable."""
    return (method for method in methods(kind) if method.code.co_name == "__init__")


def assigned(target: nn.Module, names: list[str]) -> Span | None:
    """The assignment of the module that holds a parameter, in the code of its class; None: there is none."""
    for attribute in (full.split(".")[0] for full in names):
        for constructor in constructors(type(target)):
            for node in ast.walk(constructor.tree):
                if not isinstance(node, ast.Assign | ast.AnnAssign) or not _is_for(node, attribute):
                    continue
                origin = None if node.value is None else returned(constructor.code.co_filename, node.value)
                return origin if origin is not None else constructor.span(node)
    return None


def kept(target: nn.Module, attribute: str) -> Span | None:
    """The only statement outside the constructors that puts something computed into an attribute; None: there is none,
    or several.
    """
    spans = [
        method.span(node)
        for method in methods(type(target))
        for node in ast.walk(method.tree)
        if isinstance(node, ast.Assign | ast.AnnAssign) and _is_for(node, attribute)
        and method.code.co_name != "__init__" and not isinstance(node.value, ast.Constant | None)
    ]  # fmt: skip
    return spans[0] if len(spans) == 1 else None


def registered(target: nn.Module, name: str) -> Span | None:
    """The statement that makes what the class of a module registers as a buffer; None: there is none."""
    for constructor in constructors(type(target)):
        if (statement := _registered(constructor, name)) is not None:
            return constructor.span(statement)
    return None


def _registered(constructor: Method, attribute: str) -> ast.expr | ast.stmt | None:
    """The statement that makes what a constructor registers as a buffer: of a variable, its last assignment, and of one
    that is multiplied in place, as the coordinates of an index are by its strides, the last multiplication.
    """
    for node in ast.walk(constructor.tree):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "register_buffer" and len(node.args) > 1:
            name, value = node.args[:2]
            if isinstance(name, ast.Constant) and name.value == attribute:
                return _maker(constructor.tree, value, node.lineno) or node
    return None


def _maker(tree: ast.AST, value: ast.expr, end: int) -> ast.stmt | None:
    """The last statement before a line that makes a value; None: it is made where it stands."""
    name = value.id if isinstance(value, ast.Name) else ""
    assignment = _last(tree, 0, end, lambda statement: bool(name) and _assigns(statement, name))
    nodes = ast.walk(value if assignment is None else assignment)
    for word in {node.id for node in nodes if isinstance(node, ast.Name)}:
        begin = _last(tree, 0, end if assignment is None else assignment.lineno, partial(_assigns, name=word))
        first = 0 if begin is None else begin.lineno
        # a size that is multiplied is no part of it
        product = _last(tree, first, end, partial(_multiplies, name=word, is_part=word != name))
        if product is not None:
            return product
    return assignment


def _last(tree: ast.AST, begin: int, end: int, fits: Callable[[ast.stmt], bool]) -> ast.stmt | None:
    """The last statement between two lines that fits."""
    statements = [node for node in ast.walk(tree)
                  if isinstance(node, ast.stmt) and begin <= node.lineno < end and fits(node)]  # fmt: skip
    return max(statements, key=lambda statement: statement.lineno, default=None)


def _assigns(statement: ast.stmt, name: str) -> bool:
    return isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == name


def _multiplies(statement: ast.stmt, name: str, *, is_part: bool) -> bool:
    """Whether a statement multiplies what has a name in place: a part of it, or unless that is asked for, the whole."""
    if not isinstance(statement, ast.AugAssign) or not isinstance(statement.op, ast.Mult):
        return False
    is_of_part = isinstance(statement.target, ast.Subscript)
    goal = statement.target.value if isinstance(statement.target, ast.Subscript) else statement.target
    return isinstance(goal, ast.Name) and goal.id == name and (is_of_part or not is_part)


def _is_for(node: ast.Assign | ast.AnnAssign, attribute: str) -> bool:
    """Whether an attribute is among the targets of an assignment."""
    goals = node.targets if isinstance(node, ast.Assign) else [node.target]
    parts = (each for goal in goals for each in ast.walk(goal))
    return any(isinstance(part, ast.Attribute) and part.attr == attribute for part in parts)
