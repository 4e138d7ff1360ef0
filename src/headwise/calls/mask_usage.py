"""Mask usage: what a mask means to the code that uses it, read from how it is used."""

from __future__ import annotations

import ast
import contextlib
import inspect
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from headwise.calls.roles import call_role
from headwise.calls.shape_words import kind_of
from headwise.source import meaning_of, nodes_of

__all__ = ["Meaning", "is_used_as_mask", "meanings", "other_names", "said_meaning", "sign_of"]

FILLS = ("masked_fill", "masked_fill_")
# functions that give a mask back in another shape or kind
PASSING = frozenset({
    "logical_not", "bitwise_not", "eq", "ne", "gt", "lt", "rearrange", "repeat", "unsqueeze", "repeat_interleave",
    "tensor", "as_tensor", "broadcast_to", "expand", "reshape", "logical_and", "logical_or", "pad", "cat", "concat",
})  # fmt: skip
SOFT = ("scaled_dot_product_attention", "flex_attention", "sdpa")


@dataclass(frozen=True)
class Meaning:
    """means: "attend", "blocked" or "additive"; is_sure: read from what is done, not from what it is handed to."""

    means: str
    is_sure: bool = True


def is_used_as_mask(tree: ast.AST, name: str) -> bool:
    """Whether a name chooses which scores are hidden, or is multiplied by a large number and added to them."""
    return any(each.means != "additive" for each in _meanings_in(tree, name))


def said_meaning(target: Any, name: str) -> str:
    """What the words of a target's file say that 1 means in a mask, "attend" or "blocked"; "": they do not tell."""
    kind = kind_of(target)
    with contextlib.suppress(OSError, TypeError):
        return meaning_of([inspect.getsourcefile(kind) or ""], name, kind.__name__)
    return ""


def meanings(trees: Sequence[ast.AST], masks: Collection[str] = ()) -> dict[str, Meaning]:
    """Of each name that is used as a mask somewhere; "": of any mask, for names that only pass through.

    masks: names of masks that are not called so.
    """
    out: dict[str, Meaning] = {}
    for tree in trees:
        names = {node.id for node in nodes_of(tree) if isinstance(node, ast.Name)}
        names = {
            name for name in names if name in masks or call_role(name) in ("mask", "bias") or "mask" in name.lower()
        }
        for name in sorted(names):
            for meaning in _meanings_in(tree, name):
                earlier = out.get(name)
                if earlier is None or (meaning.is_sure and not earlier.is_sure):
                    out[name] = meaning
    found_masks = [each for name, each in out.items() if call_role(name) in ("mask", "bias") or name in masks]
    first = next((mask for mask in found_masks if mask.is_sure), found_masks[0] if found_masks else None)
    if first is not None:
        out.setdefault("", first)
    return out


def _meanings_in(tree: ast.AST, name: str) -> Iterator[Meaning]:
    turn = 1
    for node in nodes_of(tree):
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in node.targets):
            scaled = _scaled_sign(node.value, name)
            if scaled:
                yield _blocks(-scaled)
                return
            turn = (sign_of(node.value, name) or 1) * turn
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            # kept under another name, or added at once: ext = (1 - mask) * -10000
            sign = _scaled_sign(node.value, name)
            if sign:
                yield _blocks(-sign * turn)
                return
    names = {name: turn, **{alias: sign * turn for alias, sign in other_names(tree, name).items()}}
    for node in nodes_of(tree):
        for alias, sign in names.items():
            # a mask in another shape, scaled under the name that it then has: ext = (1 - ext) * -10000
            filled = _filled(node, alias) if alias != name else 0
            if filled:
                yield _blocks(-filled * sign)
                return
    for node in nodes_of(tree):
        for alias, sign in names.items():
            meaning = _used(node, alias, sign)
            if meaning is not None:
                yield meaning


def _filled(node: ast.AST, name: str) -> int:
    """The sign with which a name is given itself times a large negative number; 0: it is not."""
    if not (isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in node.targets)):
        return 0
    return _scaled_sign(node.value, name)


def other_names(tree: ast.AST, name: str) -> dict[str, int]:
    """Other names for a mask in another shape, or joined with another: `m = mask[:, None] & causal`; -1: inverted."""
    out: dict[str, int] = {name: 1}
    for node in nodes_of(tree):
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        value = node.value if isinstance(node, ast.Assign | ast.AugAssign) else None
        if not isinstance(target, ast.Name) or value is None or not _is_joined(node):
            continue
        for alias, turn in list(out.items()):
            sign = sign_of(value, alias)
            if sign and target.id not in out:
                out[target.id] = sign * turn
    return {each: sign for each, sign in out.items() if each != name}


def _is_joined(node: ast.AST) -> bool:
    """Whether what is assigned is no arithmetic, or joins masks by and, or."""
    value = node if isinstance(node, ast.AugAssign) else getattr(node, "value", None)
    return not isinstance(value, ast.BinOp | ast.AugAssign) or isinstance(value.op, ast.BitAnd | ast.BitOr)


def _used(node: ast.AST, name: str, turn: int) -> Meaning | None:
    """What one use tells; turn: -1 where the name was inverted before."""
    if isinstance(node, ast.Call):
        return _called(node, name, turn)
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
        sign = sign_of(node.targets[0].slice, name)
        return _blocks(-sign * turn) if sign and _is_low(node.value) else None
    if isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.Add | ast.Sub):
        sides = [node.value] if isinstance(node, ast.AugAssign) else [node.right, node.left]
        for side in sides:
            sign = sign_of(side, name)
            # 1 - mask is a step on the way
            if sign and not (isinstance(node, ast.BinOp) and isinstance(node.left, ast.Constant)):
                # what is left of 1 is added by itself, or joined with the same of something else
                is_lone = isinstance(node, ast.AugAssign) or not all(sign_of(each, name) for each in sides)
                is_filled = _is_scaled(side) or (is_lone and _is_left_of_one(side))
                return _blocks(-sign * turn) if is_filled else Meaning("additive")
    return None


def _called(node: ast.Call, name: str, turn: int) -> Meaning | None:
    called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if called in FILLS and node.args:
        sign = sign_of(node.args[0], name)
        return _blocks(-sign * turn) if sign else None
    if called == "where" and len(node.args) == 3:
        sign = sign_of(node.args[0], name)
        return _blocks((-sign if _is_low(node.args[1]) else sign) * turn) if sign else None
    if called.endswith(SOFT):
        handed = [*node.args[3:4], *[each.value for each in node.keywords if each.arg == "attn_mask"]]
        signs = [sign_of(each, name) for each in handed]
        # it takes additive masks too, so that what is done elsewhere counts more
        return Meaning("attend" if signs[0] * turn > 0 else "blocked", is_sure=False) if signs and signs[0] else None
    for keyword in node.keywords:
        sign = sign_of(keyword.value, name)
        if sign and keyword.arg in ("attn_mask", "key_padding_mask"):
            return Meaning("blocked" if sign * turn > 0 else "attend", is_sure=False)
    return None


def _blocks(sign: int) -> Meaning:
    return Meaning("attend" if sign > 0 else "blocked")


def sign_of(node: ast.AST, name: str) -> int:
    """1: true where the name is; -1: where it is not; 0: the name is not in it."""
    if isinstance(node, ast.Name):
        return int(node.id == name)
    if isinstance(node, ast.UnaryOp):
        sign = sign_of(node.operand, name)
        return -sign if isinstance(node.op, ast.Invert | ast.Not) else sign
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        sign = sign_of(node.left, name)
        return sign if _is_true_like(node.ops[0], node.comparators[0]) else -sign
    if isinstance(node, ast.BinOp):
        if isinstance(node.op, ast.Sub) and isinstance(node.left, ast.Constant):
            return -sign_of(node.right, name)
        if isinstance(node.op, ast.Sub) and isinstance(node.right, ast.Constant):
            return -sign_of(node.left, name)
        return sign_of(node.left, name) or sign_of(node.right, name)
    if isinstance(node, ast.Call):
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        handed = node.args if called in PASSING else []
        sign = sign_of(node.func, name) or next((s for s in (sign_of(each, name) for each in handed) if s), 0)
        is_zero = bool(node.args) and isinstance(node.args[-1], ast.Constant) and not node.args[-1].value
        turns = called in ("logical_not", "bitwise_not") or (called == "eq" and is_zero)
        return -sign if turns else sign
    if isinstance(node, ast.Attribute | ast.Subscript | ast.Starred):
        return sign_of(node.value, name)
    if isinstance(node, ast.List | ast.Tuple):
        return next((sign for sign in (sign_of(each, name) for each in node.elts) if sign), 0)
    return sign_of(node.body, name) or sign_of(node.orelse, name) if isinstance(node, ast.IfExp) else 0


def _is_true_like(sign: ast.cmpop, comparator: ast.expr) -> bool:
    value = comparator.value if isinstance(comparator, ast.Constant) else 1
    if isinstance(sign, ast.Eq | ast.Is):
        return bool(value)
    if isinstance(sign, ast.NotEq | ast.IsNot):
        return not value
    return isinstance(sign, ast.Gt | ast.GtE)


def _is_low(node: ast.AST) -> bool:
    """Whether a value is a large negative number, minus infinity, or the least that there is."""
    text = ast.unparse(node)
    return "inf" in text or "min" in text or text.startswith("-") or "neg" in text.lower()


def _is_scaled(node: ast.AST) -> bool:
    """Whether a mask is multiplied by a large number, so that it can be added."""
    return any(_scaled(node))


def _scaled(node: ast.AST) -> Iterator[ast.expr]:
    """What is multiplied by a large number within a value."""
    for child in ast.walk(node):
        if isinstance(child, ast.BinOp) and isinstance(child.op, ast.Mult):
            sides = (child.left, child.right)
            yield from (other for side, other in zip(sides, reversed(sides), strict=True) if _is_large(side))


def _scaled_sign(node: ast.AST, name: str) -> int:
    """The sign with which a name is multiplied by a large number; 0: it is not."""
    # beside a mask that is added as it is, another may be scaled
    scaled = [each for each in _scaled(node) if any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(each))]
    signs = [sign_of(each, name) for each in scaled]
    return next((sign for sign in signs if sign), sign_of(node, name) if signs else 0)


def _is_left_of_one(node: ast.AST) -> bool:
    """Whether what a mask leaves of 1 is multiplied by anything: it holds ones and zeros."""
    products = [each for each in ast.walk(node) if isinstance(each, ast.BinOp) and isinstance(each.op, ast.Mult)]
    sides = [side for product in products for side in (product.left, product.right) if isinstance(side, ast.BinOp)]
    return any(
        isinstance(side.op, ast.Sub) and isinstance(side.left, ast.Constant) and side.left.value == 1 for side in sides
    )


def _is_large(node: ast.AST) -> bool:
    value = node.operand if isinstance(node, ast.UnaryOp) else node
    if isinstance(value, ast.Constant) and isinstance(value.value, int | float):
        return abs(value.value) > 100
    return "inf" in ast.unparse(node) or ".min" in ast.unparse(node)
