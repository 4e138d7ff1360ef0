"""Candidates: how the source of what was found wrong could be written, the likeliest first; the doctor tries them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from headwise.diagnosis.patches.dropout import UNDROPPED
from headwise.diagnosis.patches.expressions import called, receiver
from headwise.diagnosis.patches.masks import REMASKED
from headwise.diagnosis.patches.names import RENAMED
from headwise.diagnosis.patches.no_ops import removes, without_idle
from headwise.diagnosis.patches.rotary import rotated
from headwise.diagnosis.patches.scales import SCALES, Rescaled
from headwise.diagnosis.suspects import Suspect
from headwise.source import Code, Edits, code_at

__all__ = ["candidates"]

MOST = 4
_NUMBER = ast.Constant | ast.UnaryOp


def candidates(suspect: Suspect) -> tuple[Edits, ...]:
    """Edits of the person's file, each a whole of its own."""
    code = code_at(suspect.span)
    written = suspect.repair.rewriting or WRITTEN.get(suspect.kind) or WRITTEN.get(suspect.general)
    if written is None or code is None:
        return ()
    out: list[Edits] = []
    for proposed in written(code, suspect):
        edits = without_idle(code, proposed)
        if edits and edits not in out and not removes(code, edits, suspect):
            out.append(edits)
    return tuple(out[:MOST])


def _softmax_axis(code: Code, suspect: Suspect) -> Iterator[Edits]:
    code = code_at(suspect.home) or code
    node = code.node.value if isinstance(code.node, ast.Assign) else code.node
    inner = node.func if isinstance(node, ast.Call) and isinstance(node.func, ast.Call) else node
    arguments: list[ast.expr] = [each for each in getattr(inner, "args", ()) if isinstance(each, _NUMBER)]
    places = [keyword.value for keyword in getattr(inner, "keywords", ()) if keyword.arg in ("dim", "axis")]
    places += [*arguments[-1:], *([node] if isinstance(node, _NUMBER) else [])]
    for axis in dict.fromkeys(("-1", str(suspect.values.get("axis", -1)))):
        yield from ((code.edit(place, axis),) for place in places)
    if not isinstance(node, ast.Call):
        return
    if called(node) not in ("softmax", "log_softmax") and len(node.args) == 1 and suspect.home is None:
        yield (code.edit(node, f"{code.bracketed(node.args[0])}.softmax(dim=-1)"),)
    elif not arguments and not node.keywords and node.args:
        yield (code.edit(node.args[-1], f"{code.of(node.args[-1])}, dim=-1"),)


def _softmax_missing(code: Code, suspect: Suspect) -> Iterator[Edits]:
    yield (code.edit(code.node, f"({code.of(code.node)}).softmax(dim={suspect.values.get('axis', -1)})"),)


def _softmax_replaced(code: Code, suspect: Suspect) -> Iterator[Edits]:
    scores = receiver(code.node) or next(iter(getattr(code.node, "args", [])), getattr(code.node, "left", None))
    if isinstance(scores, ast.expr):
        yield (code.edit(code.node, f"{code.bracketed(scores)}.softmax(dim={suspect.values.get('axis', -1)})"),)


def _gradient_cut(code: Code, _: Suspect) -> Iterator[Edits]:
    node = code.node
    if isinstance(node, ast.Call) and called(node) in ("detach", "clone", "item") and receiver(node) is not None:
        yield (code.edit(node, code.of(receiver(node) or node)),)
    if isinstance(node, ast.Attribute) and node.attr == "data":
        yield (code.edit(node, code.of(node.value)),)


def _contiguous(code: Code, _: Suspect) -> Iterator[Edits]:
    node = code.node
    if isinstance(node, ast.Call) and called(node) == "view" and isinstance(node.func, ast.Attribute):
        yield (code.edit(node.func, f"{code.of(node.func.value)}.contiguous().view"),)


WRITTEN: dict[str, Callable[[Code, Suspect], Iterator[Edits]]] = {
    "softmax-axis": _softmax_axis, "softmax-missing": _softmax_missing, "softmax-replaced": _softmax_replaced,
    "gradient-cut": _gradient_cut, "rotary-wrong": rotated, "view-noncontiguous": _contiguous, **UNDROPPED, **RENAMED,
    **REMASKED, **dict.fromkeys(SCALES, Rescaled()),
}  # fmt: skip
