"""Expressions: other texts for conditions, products and movements of user code."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from headwise.diagnosis.suspects import Suspect
from headwise.source import Code, Edits, Span, code_at

__all__ = ["called", "moved", "negated", "queries_of", "receiver", "with_argument"]

RESHAPES = ("view", "reshape")
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


def _rearranged(code: Code, move: object) -> Iterator[str]:
    """A view, a reshape or a transpose that keeps together what belongs together, as other calls.

    move: (the shape before, its parts, their order, the shape after, how many parts go into each of its axes).
    """
    node = code.node
    if not isinstance(node, ast.Call) or not isinstance(move, tuple):
        return
    before, parts, order, after, cuts = move
    tensor = receiver(node)
    given = list(node.args)
    if tensor is None and given:
        tensor, given = given[0], given[1:]
    if tensor is None:
        return
    if len(given) == 1 and isinstance(given[0], ast.Tuple | ast.List):
        given = list(given[0].elts)
    is_reshape = called(node) in RESHAPES
    text = (
        code.of(tensor)
        if isinstance(tensor, ast.Name | ast.Attribute | ast.Call | ast.Subscript)
        else f"({code.of(tensor)})"
    )
    axes, arguments = _turned(order), ", ".join(code.of(each) for each in given)
    again = {"view_as": "reshape_as", "reshape_as": "reshape_as", "flatten": "flatten"}.get(called(node), "reshape")
    if tuple(parts) == tuple(before):
        if all(cut == 1 for cut in cuts):
            yield f"{text}{axes}"
        elif is_reshape or again != "reshape":
            yield f"{text}{axes}.{again}({arguments})"
    elif is_reshape and (halves := _divided(code, given, before, parts, after)):
        yield f"{text}{halves}{axes}.reshape({arguments})"
    elif is_reshape and all(cut == 1 for cut in cuts) and len(given) == len(after):
        sizes = [""] * len(given)
        for at, place in enumerate(order):
            sizes[place] = code.of(given[at])
        yield f"{text}.{called(node)}({', '.join(sizes)}){axes}"


def _divided(
    code: Code, arguments: Sequence[ast.expr], before: Sequence[int], parts: Sequence[int], after: Sequence[int]
) -> str:
    """The call that divides one axis in two, by a size that a reshape is given; "": it is another case."""
    axis = next((at for at, (a, b) in enumerate(zip(before, parts, strict=False)) if a != b), None)
    if axis is None or len(parts) != len(before) + 1 or list(parts[axis + 2 :]) != list(before[axis + 1 :]):
        return ""
    sizes = {size: code.of(node) for size, node in zip(after, arguments, strict=False) if code.of(node) != "-1"}
    slow, fast = (sizes.get(part, "") for part in parts[axis : axis + 2])
    return f".unflatten({axis}, ({slow or -1}, {-1 if slow else fast}))" if slow or fast else ""


def _turned(order: Sequence[int]) -> str:
    """A transpose, or where more than two axes move, a permute; "" where none does."""
    moved = [at for at, each in enumerate(order) if at != each]
    if not moved:
        return ""
    if len(moved) == 2:
        return f".transpose({moved[0]}, {moved[1]})"
    return f".permute({', '.join(map(str, order))})"


def moved(code: Code, suspect: Suspect) -> Iterator[Edits]:
    swapped, merge = suspect.said.get("_swapped"), suspect.said.get("_merge")
    if isinstance(swapped, tuple):
        yield from _swapped(swapped, merge)
    move = suspect.said.get("_move")
    if move is not None:
        yield from ((code.edit(code.node, text),) for text in _rearranged(code, move))
    order = suspect.said.get("_then")
    if isinstance(order, tuple):
        yield (code.edit(code.node, f"{code.bracketed(code.node)}.permute({', '.join(map(str, order))})"),)
    if suspect.said.get("_product") and isinstance(code.node, ast.BinOp | ast.Call):
        second = code.node.right if isinstance(code.node, ast.BinOp) else code.node.args[-1]
        if called(second) in ("transpose", "permute", "swapaxes") and isinstance(second, ast.Call):
            # a transposition of the wrong axes
            whose = receiver(second) or second.args[0]
            yield (code.edit(second, f"{code.bracketed(whose)}.transpose(-2, -1)"),)
        yield (code.edit(second, f"{code.bracketed(second)}.transpose(-2, -1)"),)


def _swapped(splits: Sequence[tuple[Span, Sequence[int]]], merge: object) -> Iterator[Edits]:
    """Heads and tokens transposed where heads are split, and back where they are merged. merge: where, and how it goes;
    None: it fits.
    """
    entries = [(code_at(span), order) for span, order in splits]
    edits = tuple(code.edit(code.node, f"{code.of(code.node)}{_turned(order)}") for code, order in entries if code)
    if isinstance(merge, tuple):
        there = code_at(merge[0])
        texts = () if there is None else _rearranged(there, merge[1])
        yield from ((*edits, there.edit(there.node, text)) for text in texts if there is not None)
    else:
        yield edits
