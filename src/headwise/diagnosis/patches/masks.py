"""Masks: patches of masks: what they hide, with what, and when."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from headwise.diagnosis.patches.expressions import called, negated, receiver
from headwise.diagnosis.suspects import Suspect
from headwise.source import Code, Edits, Span, assigned_pairs, code_at, function_of

__all__ = ["REMASKED", "masked_before"]

FILLS = ("masked_fill", "masked_fill_", "where")


def _conditions(code: Code) -> Iterator[ast.expr]:
    """What tells an operation on scores where to hide."""
    for node in ast.walk(code.node):
        if isinstance(node, ast.Call) and called(node) in FILLS and node.args:
            yield node.args[0]
        if isinstance(node, ast.Call):
            yield from (keyword.value for keyword in node.keywords if keyword.arg in ("attn_mask", "mask", "condition"))
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            yield node.targets[0].slice
    for statement in code.around(code.node):
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Subscript):
            yield statement.targets[0].slice
        if isinstance(statement, ast.stmt):
            break


def _mask_inverted(code: Code, _: Suspect) -> Iterator[Edits]:
    for condition in _conditions(code):
        for turned in filter(None, (_origin_of_optional(code, condition), condition)):
            yield from ((code.edit(turned, text),) for text in negated(code, turned))
    for node in ast.walk(code.node):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub) and code.of(node.left) in ("1", "1.0"):
            yield (code.edit(node, code.of(node.right)),)


def _origin_of_optional(code: Code, condition: ast.expr) -> ast.expr | None:
    """What a condition is made of where the function gives its name None too, which cannot be negated; None: it does
    not.
    """
    function = function_of(code, code.node) if isinstance(condition, ast.Name) else None
    if function is None:
        return None
    name = code.of(condition)
    values = [(node.lineno, value) for node in ast.walk(function) if isinstance(node, ast.Assign)
              for target, value in assigned_pairs(node) if getattr(target, "id", "") == name]  # fmt: skip
    made = [pair for pair in values if not (isinstance(pair[1], ast.Constant) and pair[1].value is None)]
    before = [pair for pair in made if pair[0] < condition.lineno]
    return max(before, key=lambda pair: pair[0])[1] if before and len(made) < len(values) else None


def _mask_weak(code: Code, _: Suspect) -> Iterator[Edits]:
    for node in (*ast.walk(code.node), *code.around(code.node)):
        if isinstance(node, ast.Call) and called(node) in FILLS:
            fills = [*node.args[1:], *(keyword.value for keyword in node.keywords if keyword.arg in ("value", "other"))]
            yield from ((code.edit(fill, 'float("-inf")'),) for fill in fills if _is_number(fill))
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript) and _is_number(node.value):
            yield (code.edit(node.value, 'float("-inf")'),)
        if isinstance(node, ast.FunctionDef):
            break


def _mask_multiplied(code: Code, _: Suspect) -> Iterator[Edits]:
    """Scores that are filled where they were multiplied by a mask, whichever of the two factors is the mask."""
    node = code.node
    factors: list[ast.expr] = []
    if isinstance(node, ast.BinOp):
        factors = [node.left, node.right]
    elif isinstance(node, ast.AugAssign):
        factors = [node.target, node.value]
    elif isinstance(node, ast.Call):
        whose = receiver(node)
        factors = [*([] if whose is None else [whose]), *node.args][:2]
    ways = [factors, factors[::-1]] if len(factors) == 2 and not isinstance(node, ast.AugAssign) else [factors]
    for scores, mask in (each for each in ways if len(each) == 2):
        text = f'{code.bracketed(scores)}.masked_fill({code.bracketed(mask)} == 0, float("-inf"))'
        yield (code.edit(node, f"{code.of(scores)} = {text}" if isinstance(node, ast.AugAssign) else text),)


def _is_number(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return called(node) in ("zeros_like", "zeros", "full_like", "full", "tensor")
    return isinstance(node, ast.Constant) or (isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant))


def _mask_ignored(code: Code, _: Suspect) -> Iterator[Edits]:
    function = function_of(code, code.node)
    for node in ast.walk(function) if function is not None else ():
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and called(node.value) in FILLS[:1]:
            kept = receiver(node.value) or node.value.args[0]
            yield (code.edit(node, f"{code.of(kept)} = {code.of(node)}"),)


def masked_before(code: Code, _: Suspect, *, softmax: Span) -> Iterator[Edits]:
    """A mask of the weights, of the scores instead."""
    node, there = code.node, code_at(softmax)
    if there is None or not isinstance(there.node, ast.Call):
        return
    scores = receiver(there.node) or there.node.args[0]
    sides: list[tuple[ast.expr, str]] = []
    if isinstance(node, ast.BinOp):
        sides = [
            (node.left, f"{code.bracketed(node.right)} == 0"),
            (node.right, f"{code.bracketed(node.left)} == 0"),
        ]
    elif isinstance(node, ast.AugAssign):
        sides = [(node.target, f"{code.bracketed(node.value)} == 0")]
    elif isinstance(node, ast.Call) and called(node) in FILLS and receiver(node) is not None:
        sides = [(receiver(node) or node, code.of(node.args[0]))]
    test = next((outer.test for outer in code.around(node) if isinstance(outer, ast.If)), None)
    for kept, condition in sides:
        hidden = f'{code.bracketed(scores)}.masked_fill({condition}, float("-inf"))'
        if test is not None:
            hidden = f"({hidden} if {code.of(test)} else {code.of(scores)})"
        left = "pass" if isinstance(node, ast.AugAssign) else code.of(kept)
        if any(part.lineno == getattr(scores, "lineno", 0) and part.col_offset == scores.col_offset
               for part in ast.walk(node) if isinstance(part, ast.expr)):  # fmt: skip
            # the softmax is a part of what goes
            yield (code.edit(node, left.replace(code.of(scores), hidden, 1)),)
        else:
            yield (code.edit(node, left), code.edit(scores, hidden))


REMASKED = {
    "mask-inverted": _mask_inverted, "mask-weak-fill": _mask_weak, "mask-multiplied": _mask_multiplied,
    "mask-ignored": _mask_ignored,
}  # fmt: skip
