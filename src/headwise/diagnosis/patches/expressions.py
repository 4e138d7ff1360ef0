"""Expressions: other texts for conditions, products and parts of user code."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from headwise.source import Code

__all__ = ["called", "negated", "queries_of", "receiver", "with_argument"]

MODULES = ("torch", "F", "functional", "nn", "einops", "math", "np")


def called(node: ast.AST) -> str:
    """The last part of the name of what is called."""
    if not isinstance(node, ast.Call):
        return ""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def receiver(node: ast.AST) -> ast.expr | None:
    """The tensor that a method is called on; None: it is a function."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    value = node.func.value
    root: ast.AST = value
    while isinstance(root, ast.Attribute):
        root = root.value
    is_module = isinstance(root, ast.Name) and root.id in MODULES
    return None if is_module or (isinstance(root, ast.Name) and root.id == "self" and root is value) else value


def with_argument(code: Code, argument: ast.expr, text: str) -> str:
    """The text of a call on one line, with a text in place of one of its arguments; "": it stands on several."""
    whole, part = code.edit(code.node, ""), code.edit(argument, "")
    if whole.line != whole.end_line:
        return ""
    line = code.of(code.node)
    return f"{line[: part.column - whole.column]}{text}{line[part.end_column - whole.column :]}"


def queries_of(code: Code) -> tuple[str, int]:
    """The first operand of a product, and its axis that is summed over; "": it is not a plain one."""
    node = code.node
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        return _plain(code, node.left), -1
    if called(node) == "einsum" and isinstance(node, ast.Call) and len(node.args) == 3:
        equation = node.args[0].value if isinstance(node.args[0], ast.Constant) else ""
        terms, _, out = str(equation).replace(" ", "").partition("->")
        first, _, second = terms.partition(",")
        summed = [at for at, each in enumerate(first) if each in second and each not in out and each != "."]
        if len(summed) == 1:
            return _plain(code, node.args[1]), summed[0] - len(first)
    if called(node) in ("matmul", "bmm") and isinstance(node, ast.Call):
        tensor = receiver(node) or node.args[0]
        return _plain(code, tensor), -1
    return "", -1


def _plain(code: Code, node: ast.AST) -> str:
    if isinstance(node, ast.Name | ast.Attribute):
        return code.of(node)
    return f"({code.of(node)})" if isinstance(node, ast.BinOp) else code.of(node) if isinstance(node, ast.Call) else ""


def negated(code: Code, node: ast.expr) -> Iterator[str]:
    """A condition that holds where another does not."""
    turned = {ast.Eq: "!=", ast.NotEq: "==", ast.Lt: ">=", ast.GtE: "<", ast.Gt: "<=", ast.LtE: ">"}
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert | ast.Not):
        yield code.of(node.operand)
    elif isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in turned:
        right = node.comparators[0]
        if isinstance(node.ops[0], ast.Eq) and isinstance(right, ast.Constant) and right.value in (0, 1, True, False):
            yield f"{code.of(node.left)} == {_other(right.value)}"
        yield f"{code.of(node.left)} {turned[type(node.ops[0])]} {code.of(right)}"
    elif isinstance(node, ast.Call) and called(node) in ("logical_not", "bitwise_not"):
        yield code.of(receiver(node) or node.args[0])
    elif isinstance(node, ast.Call) and called(node) in ("eq", "ne") and receiver(node) is not None:
        yield f"{code.of(receiver(node) or node)} {'!=' if called(node) == 'eq' else '=='} {code.of(node.args[0])}"
    elif not isinstance(node, ast.Constant):
        simple = isinstance(node, ast.Name | ast.Attribute | ast.Call | ast.Subscript)
        text = code.of(node) if simple else f"({code.of(node)})"
        yield f"~{text}"
        yield f"{text} == 0"


def _other(value: object) -> str:
    return {"0": "1", "1": "0", "True": "False", "False": "True"}[str(value)]
