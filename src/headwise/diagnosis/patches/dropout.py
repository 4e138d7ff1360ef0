"""Dropout: patches of where dropout stands, and when it drops."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from headwise.diagnosis.patches.expressions import called, with_argument
from headwise.diagnosis.suspects import Suspect
from headwise.source import Code, Edits, Span, code_at

__all__ = ["UNDROPPED", "dropout_of_weights"]


def dropout_of_weights(code: Code, _: Suspect, *, softmax: Span) -> Iterator[Edits]:
    """The dropout of the scores, of the weights instead."""
    node, there = code.node, code_at(softmax)
    if there is None or not isinstance(node, ast.Call) or not node.args:
        return
    scores, weights = code.of(node.args[0]), there.of(there.node)
    if any(code.edit(each, "") == code.edit(node, "") for each in ast.walk(there.node) if isinstance(each, ast.Call)):
        within = weights.replace(code.of(node), scores, 1)
        yield (there.edit(there.node, with_argument(code, node.args[0], within)),)
    else:
        yield (code.edit(node, scores), there.edit(there.node, with_argument(code, node.args[0], weights)))


def _dropout_in_eval(code: Code, _: Suspect) -> Iterator[Edits]:
    node = code.node
    if not isinstance(node, ast.Call):
        return
    for keyword in node.keywords:
        if keyword.arg == "training":
            yield (code.edit(keyword.value, "self.training"),)
        if keyword.arg == "dropout_p":
            yield (code.edit(keyword.value, f"{code.of(keyword.value)} if self.training else 0.0"),)
    if called(node) == "scaled_dot_product_attention":
        return
    if isinstance(node.func, ast.Call):
        chance = f", {code.of(node.func.args[0])}" if node.func.args else ""
        text = f"torch.nn.functional.dropout({code.of(node.args[0])}{chance}, training=self.training)"
        yield (code.edit(node, text),)
    elif len(node.args) > 2:
        yield (code.edit(node.args[2], "self.training"),)
    elif node.args and not any(each.arg == "training" for each in node.keywords):
        last = node.keywords[-1].value if node.keywords else node.args[-1]
        yield (code.edit(last, f"{code.of(last)}, training=self.training"),)


def _dropout_twice(code: Code, _: Suspect) -> Iterator[Edits]:
    """The input of the second dropout in its place."""
    if isinstance(code.node, ast.Call) and code.node.args:
        yield (code.edit(code.node, code.bracketed(code.node.args[0])),)


UNDROPPED = {"dropout-in-eval": _dropout_in_eval, "dropout-twice": _dropout_twice}
