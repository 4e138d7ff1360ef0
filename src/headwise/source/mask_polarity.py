"""Mask polarity: whether the masks that a file makes are True at allowed or at masked keys."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping

from torch import Tensor

from headwise.source.syntax import nodes_of

__all__ = ["made_masks", "masks_called"]

# these return a mask unchanged
PASSING = frozenset({
    "unsqueeze", "bool", "to", "int", "float", "byte", "expand", "repeat", "view", "reshape", "type", "long", "cuda",
    "expand_as", "type_as", "clone", "contiguous", "detach", "transpose", "from_numpy", "as_tensor", "tensor", "astype",
})  # fmt: skip
TOKENS = re.compile(
    r"(^|_)(src|trg|tgt|seq|ids?|tokens?|inputs?|source|target|x)(_|$)|(^|_)(enc|dec)_in", re.IGNORECASE
)
LIBRARIES = frozenset({"torch", "F", "nn", "np", "functional"})
FEW = 2
# numbers that a sum with scores hides
INFINITE = re.compile(r"\binf\b|['\"]-inf|\.finfo\(|full\(.*-\s?1e|full\(.*-\s?10{3,}")


def made_masks(tree: ast.AST, kind: str, name: str, others: Collection[int]) -> Iterator[str]:
    """The meaning of each mask that a file makes outside of a class, and of those that the class joins to its argument.

    kind: the class. name: the argument. others: the lines of other attention classes, which make masks of their own.
    """
    kept = _kept(tree)
    for node in getattr(tree, "body", []):
        if (isinstance(node, ast.FunctionDef) and node.name in kept) or node.lineno in others:
            continue
        if isinstance(node, ast.ClassDef) and node.name == kind:
            yield from _joined(node, name)
            continue
        for function in _functions(node):
            signs_of, added = _local(function), _added(function)
            # a mask of a loss is handed to nothing
            values = [
                step.value
                for step in nodes_of(function)
                if isinstance(step, ast.Assign)
                and any(_is_given(function, name) for name in _masks_of(step) if name not in added)
            ]
            if "mask" in getattr(function, "name", "").lower():
                returns = [each.value for each in nodes_of(function) if isinstance(each, ast.Return)]
                values += [
                    part
                    for statement in returns
                    if statement is not None
                    for part in getattr(statement, "elts", [statement])
                ]
            signs = [_sign(value, signs_of) for value in values]
            yield from ("attend" if sign > 0 else "blocked" for sign in signs if sign)


def masks_called(tree: ast.AST, kind: str, name: str, others: Collection[int]) -> Iterator[str]:
    """The meaning of each mask that a file makes under the name of an argument and hands to a layer or a function.

    Not in its class `kind`, and not on the lines `others`, which are of other attention classes.
    """
    for node in getattr(tree, "body", []):
        if (isinstance(node, ast.ClassDef) and node.name == kind) or node.lineno in others:
            continue
        for function in _functions(node):
            sign = 0 if name in _parameters(function) else _local(function).get(name, 0)
            if sign and _is_handed_on(function, name):
                yield "attend" if sign > 0 else "blocked"


def _is_handed_on(function: ast.AST, name: str) -> bool:
    """Whether a function hands a local name to a layer of its own or to a function, and not to a method of a tensor."""
    for call in nodes_of(function):
        if not isinstance(call, ast.Call) or not _is_of_code(call.func):
            continue
        handed = [*call.args, *(keyword.value for keyword in call.keywords)]
        if any(isinstance(each, ast.Name) and each.id == name for each in handed):
            return True
    return False


def _is_of_code(function: ast.expr) -> bool:
    """Whether what is called is no function of torch and no method of a tensor."""
    if isinstance(function, ast.Attribute):
        base = function.value
        return not hasattr(Tensor, function.attr) and not (isinstance(base, ast.Name) and base.id in LIBRARIES)
    return isinstance(function, ast.Name | ast.Subscript)


def _parameters(function: ast.AST) -> set[str]:
    return {node.arg for node in nodes_of(function) if isinstance(node, ast.arg)}


def _kept(tree: ast.AST) -> set[str]:
    """The functions that a constructor calls: their masks are buffers, no arguments."""
    inits = [node for node in nodes_of(tree) if isinstance(node, ast.FunctionDef) and node.name == "__init__"]
    calls = [node for init in inits for node in ast.walk(init) if isinstance(node, ast.Call)]
    return {call.func.id for call in calls if isinstance(call.func, ast.Name)}


def _functions(node: ast.AST) -> Iterator[ast.AST]:
    inner: list[ast.AST] = [each for each in nodes_of(node) if isinstance(each, ast.FunctionDef)]
    yield from inner or [node]


def _masks_of(node: ast.Assign) -> list[str]:
    """The names of masks that a statement makes."""
    return [target.id for target in node.targets if isinstance(target, ast.Name) and "mask" in target.id.lower()]


def _is_given(function: ast.AST, name: str) -> bool:
    """Whether a function returns a local name, or hands it on; what is no function makes it for all."""
    if not isinstance(function, ast.FunctionDef):
        return True
    returned = [step.value for step in nodes_of(function) if isinstance(step, ast.Return) and step.value is not None]
    parts = [part for value in returned for part in getattr(value, "elts", [value])]
    return any(_sign(part, {name: 1}) for part in parts) or _is_handed_on(function, name)


def _joined(kind: ast.AST, name: str) -> Iterator[str]:
    """The meanings with which an argument can be joined to a causal mask of the class."""
    for function in _functions(kind):
        signs = {key: sign for key, sign in _local(function).items() if key != name}
        for node in nodes_of(function):
            if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd | ast.BitOr)):
                continue
            wanted = 1 if isinstance(node.op, ast.BitAnd) else -1
            for side, operand in ((node.left, node.right), (node.right, node.left)):
                turn = _sign(side, {name: 1})
                if turn and _sign(operand, signs) == wanted:
                    yield "attend" if turn * wanted > 0 else "blocked"


def _local(function: ast.AST) -> dict[str, int]:
    """The signs of the local names of a function; 0: a name with several."""
    out: dict[str, int] = {}
    added = _added(function)
    for node in nodes_of(function):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            key = node.targets[0].id
            sign = 0 if key in added else _sign(node.value, out)
            out[key] = sign if out.get(key, sign) == sign else 0
    return out


def _added(function: ast.AST) -> set[str]:
    """The local names that are given large negative numbers, which are added to scores."""
    steps = [node for node in nodes_of(function) if isinstance(node, ast.Assign) and INFINITE.search(ast.unparse(node))]
    return {target.id for step in steps for target in step.targets if isinstance(target, ast.Name)}


def _sign(node: ast.AST, names: Mapping[str, int]) -> int:
    """1: True at allowed keys; -1: True at masked keys; 0: unknown."""
    if isinstance(node, ast.Name):
        return names.get(node.id, 0)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
        return -_sign(node.operand, names)
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        return _compared(node.left, node.ops[0], node.comparators[0], names)
    if isinstance(node, ast.BinOp):
        if isinstance(node.op, ast.Sub) and isinstance(node.left, ast.Constant):
            return -_sign(node.right, names)
        signs = [_sign(node.left, names), _sign(node.right, names)]
        wanted = {ast.BitAnd: 1, ast.BitOr: -1}.get(type(node.op), 0)
        return wanted if wanted and wanted in signs and -wanted not in signs else 0
    if isinstance(node, ast.Subscript):
        return _sign(node.value, names)
    return _called(node, names) if isinstance(node, ast.Call) else 0


def _compared(left: ast.expr, sign: ast.cmpop, right: ast.expr, names: Mapping[str, int]) -> int:
    is_equal = isinstance(sign, ast.Eq)
    if is_equal or isinstance(sign, ast.NotEq):
        if _is_padding(left, right):
            return -1 if is_equal else 1
        if isinstance(right, ast.Constant):
            sign_left = _sign(left, names)
            return sign_left if bool(right.value) == is_equal else -sign_left
        return 0
    is_less = isinstance(sign, ast.Lt | ast.LtE)
    if not (is_less or isinstance(sign, ast.Gt | ast.GtE)):
        return 0
    sides = ["arange" in ast.unparse(each) for each in (left, right)]
    if sides[0] == sides[1] or "len" not in ast.unparse(right if sides[0] else left).lower():
        return 0
    return 1 if is_less == sides[0] else -1


def _is_padding(left: ast.expr, right: ast.expr) -> bool:
    """Whether tokens are compared with the padding id."""
    if re.search("pad", ast.unparse(right), re.IGNORECASE):
        return True
    is_zero = isinstance(right, ast.Constant) and right.value == 0
    return is_zero and isinstance(left, ast.Name) and TOKENS.search(left.id) is not None


def _called(node: ast.Call, names: Mapping[str, int]) -> int:
    function = node.func
    called = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    if called in ("eq", "ne") and isinstance(function, ast.Attribute) and node.args:
        return _compared(function.value, ast.Eq() if called == "eq" else ast.NotEq(), node.args[0], names)
    if called in ("logical_not", "bitwise_not"):
        return -_sign(node.args[0] if node.args else getattr(function, "value", node), names)
    text = ast.unparse(node)
    if called == "tril" and "inf" not in text:
        return 1
    if called == "triu":
        return -1 if "inf" not in text and re.search(r"\b1\)|=1", text) else 0
    if called in PASSING and isinstance(function, ast.Attribute):
        inner = _sign(function.value, names)
        return inner or (_sign(node.args[0], names) if node.args and len(node.args) <= FEW else 0)
    return 0
