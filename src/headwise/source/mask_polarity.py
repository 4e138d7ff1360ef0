"""Mask polarity: whether the masks that a file makes are true where a key may be seen, or where it is hidden."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

__all__ = ["made_masks"]

# these hand a mask on as it is
PASSING = frozenset({
    "unsqueeze", "bool", "to", "int", "float", "byte", "expand", "repeat", "view", "reshape", "type", "long", "cuda",
    "expand_as", "type_as", "clone", "contiguous", "detach", "transpose", "from_numpy", "as_tensor", "tensor", "astype",
})  # fmt: skip
TOKENS = re.compile(
    r"(^|_)(src|trg|tgt|seq|ids?|tokens?|inputs?|source|target|x)(_|$)|(^|_)(enc|dec)_in", re.IGNORECASE
)
FEW = 2


def made_masks(tree: ast.AST, kind: str, name: str) -> Iterator[str]:
    """The meaning of each mask that a file makes outside of a class, and of what the class joins with its own argument.

    kind: the class. name: the argument.
    """
    kept = _kept(tree)
    for node in getattr(tree, "body", []):
        if isinstance(node, ast.FunctionDef) and node.name in kept:
            continue
        if isinstance(node, ast.ClassDef) and node.name == kind:
            yield from _joined(node, name)
            continue
        for function in _functions(node):
            known = _local(function)
            values = [each.value for each in ast.walk(function) if isinstance(each, ast.Assign) and _is_mask(each)]
            if "mask" in getattr(function, "name", "").lower():
                given = [each.value for each in ast.walk(function) if isinstance(each, ast.Return)]
                values += [part for each in given if each is not None for part in getattr(each, "elts", [each])]
            signs = [_sign(each, known) for each in values]
            yield from ("attend" if sign > 0 else "blocked" for sign in signs if sign)


def _kept(tree: ast.AST) -> set[str]:
    """The functions that a constructor calls: what they make a class keeps, and takes from nobody."""
    inits = [each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
    calls = [each for init in inits for each in ast.walk(init) if isinstance(each, ast.Call)]
    return {each.func.id for each in calls if isinstance(each.func, ast.Name)}


def _functions(node: ast.AST) -> Iterator[ast.AST]:
    inner: list[ast.AST] = [each for each in ast.walk(node) if isinstance(each, ast.FunctionDef)]
    yield from inner or [node]


def _is_mask(node: ast.Assign) -> bool:
    return any("mask" in each.id.lower() for each in node.targets if isinstance(each, ast.Name))


def _joined(kind: ast.AST, name: str) -> Iterator[str]:
    """What a mask must mean, so that it may be joined with a triangle that the class makes itself."""
    for function in _functions(kind):
        known = {key: sign for key, sign in _local(function).items() if key != name}
        for node in ast.walk(function):
            if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd | ast.BitOr)):
                continue
            wanted = 1 if isinstance(node.op, ast.BitAnd) else -1
            for side, other in ((node.left, node.right), (node.right, node.left)):
                turn = _sign(side, {name: 1})
                if turn and _sign(other, known) == wanted:
                    yield "attend" if turn * wanted > 0 else "blocked"


def _local(function: ast.AST) -> dict[str, int]:
    """The signs of the names that a function gives values to, once each."""
    out: dict[str, int] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            key, sign = node.targets[0].id, _sign(node.value, out)
            out[key] = sign if out.get(key, sign) == sign else 0
    return out


def _sign(node: ast.AST, known: Mapping[str, int]) -> int:
    """1: true where a key may be seen; -1: where it is hidden; 0: that is not known."""
    if isinstance(node, ast.Name):
        return known.get(node.id, 0)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
        return -_sign(node.operand, known)
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        return _compared(node.left, node.ops[0], node.comparators[0], known)
    if isinstance(node, ast.BinOp):
        if isinstance(node.op, ast.Sub) and isinstance(node.left, ast.Constant):
            return -_sign(node.right, known)
        signs = [_sign(node.left, known), _sign(node.right, known)]
        wanted = {ast.BitAnd: 1, ast.BitOr: -1}.get(type(node.op), 0)
        return wanted if wanted and wanted in signs and -wanted not in signs else 0
    if isinstance(node, ast.Subscript):
        return _sign(node.value, known)
    return _called(node, known) if isinstance(node, ast.Call) else 0


def _compared(left: ast.expr, sign: ast.cmpop, right: ast.expr, known: Mapping[str, int]) -> int:
    is_equal = isinstance(sign, ast.Eq)
    if is_equal or isinstance(sign, ast.NotEq):
        if _is_padding(left, right):
            return -1 if is_equal else 1
        if isinstance(right, ast.Constant):
            own = _sign(left, known)
            return own if bool(right.value) == is_equal else -own
        return 0
    is_less = isinstance(sign, ast.Lt | ast.LtE)
    if not (is_less or isinstance(sign, ast.Gt | ast.GtE)):
        return 0
    sides = ["arange" in ast.unparse(each) for each in (left, right)]
    if sides[0] == sides[1] or "len" not in ast.unparse(right if sides[0] else left).lower():
        return 0
    return 1 if is_less == sides[0] else -1


def _is_padding(left: ast.expr, right: ast.expr) -> bool:
    """Whether tokens are compared with the number of padding."""
    if re.search("pad", ast.unparse(right), re.IGNORECASE):
        return True
    is_zero = isinstance(right, ast.Constant) and right.value == 0
    return is_zero and isinstance(left, ast.Name) and TOKENS.search(left.id) is not None


def _called(node: ast.Call, known: Mapping[str, int]) -> int:
    function = node.func
    called = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    if called in ("eq", "ne") and isinstance(function, ast.Attribute) and node.args:
        return _compared(function.value, ast.Eq() if called == "eq" else ast.NotEq(), node.args[0], known)
    if called in ("logical_not", "bitwise_not"):
        return -_sign(node.args[0] if node.args else getattr(function, "value", node), known)
    text = ast.unparse(node)
    if called == "tril" and "inf" not in text:
        return 1
    if called == "triu":
        return -1 if "inf" not in text and re.search(r"\b1\)|=1", text) else 0
    if called in PASSING and isinstance(function, ast.Attribute):
        own = _sign(function.value, known)
        return own or (_sign(node.args[0], known) if node.args and len(node.args) <= FEW else 0)
    return 0
