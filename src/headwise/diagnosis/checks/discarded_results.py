"""Discarded results: operations that give a new tensor, which a statement of its own throws away."""

from __future__ import annotations

import ast

from headwise.dataflow import MarkedOp, Run
from headwise.diagnosis.suspects import Suspect
from headwise.source import code_at

__all__ = ["discarded_results"]

# what gives other numbers, or the same in another order, and leaves its input as it is
CHANGES = frozenset({
    "masked_fill", "masked_scatter", "index_fill", "index_add", "index_copy", "scatter", "scatter_add", "clamp", "clip",
    "transpose", "permute", "flip", "roll", "tril", "triu", "softmax", "normalize", "mul", "div", "add", "sub", "where",
})  # fmt: skip


def discarded_results(run: Run) -> list[Suspect]:
    """The first operation whose statement changes nothing."""
    taken = {tensor.number for entry in run.seen for tensor in entry.inputs}
    for entry in run.seen:
        is_new = bool(entry.outputs) and not entry.operation.writes and "out" not in entry.options
        if entry.last in CHANGES and is_new and not entry.results & taken and _is_statement(entry):
            return [Suspect("result-discarded", entry.span, values={"name": entry.last}, proved=True)]
    return []


def _is_statement(entry: MarkedOp) -> bool:
    """Whether an operation is all that a statement does."""
    code = code_at(entry.span)
    if code is None:
        return False
    around = (outer for outer in (code.node, *code.around(code.node)) if isinstance(outer, ast.stmt))
    statement = next(around, None)
    call = statement.value if isinstance(statement, ast.Expr) else None
    if code.node is not statement and code.node is not call:
        # an argument of the call is another operation
        return False
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == entry.last
