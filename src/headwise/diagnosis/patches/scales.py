"""Scales: patches of what scores are multiplied by."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from headwise.diagnosis.patches.expressions import called, queries_of, receiver
from headwise.diagnosis.suspects import Suspect
from headwise.source import Code, Edits, Span, code_at, function_of

__all__ = ["SCALES", "Rescaled"]


@dataclass(frozen=True)
class Rescaled:
    """Scores with their scale put right, as the kind of a suspect asks. scores: where they are made; widths: what the
    class calls the head width.
    """

    scores: Span | None = None
    widths: tuple[str, ...] = ()

    def __call__(self, code: Code, suspect: Suspect) -> Iterator[Edits]:
        written = SCALES.get(suspect.kind) or SCALES.get(suspect.general)
        return iter(()) if written is None else written(self, code, suspect)

    def root(self, code: Code, power: str = "0.5") -> str:
        """The root of the head width, as it can be said where the scores are made; "": not at this place."""
        scores = code_at(self.scores)
        if scores is None or function_of(scores, scores.node) is not function_of(code, code.node):
            return ""
        queries, axis = queries_of(scores)
        return f"{queries}.shape[{axis}] ** {power}" if queries else ""


def _scale_missing(where: Rescaled, code: Code, _: Suspect) -> Iterator[Edits]:
    yield from _scale_of_call(code)
    if root := where.root(code):
        is_sum = isinstance(code.node, ast.BinOp) and isinstance(code.node.op, ast.Add | ast.Sub)
        whole = code.bracketed(code.node) if is_sum else code.of(code.node)
        yield (code.edit(code.node, code.alone(f"{whole} / {root}", code.node)),)


def _scale_wrong(where: Rescaled, code: Code, _: Suspect) -> Iterator[Edits]:
    node = code.node
    yield from _scale_of_call(code)
    for width in (*(f"self.{width}" for width in where.widths), ""):
        over, times = (f"{width} ** 0.5", f"{width} ** -0.5") if width else (where.root(code), where.root(code, "-0.5"))
        if not over:
            continue
        if isinstance(node, ast.AugAssign):
            yield (code.edit(node.value, over if isinstance(node.op, ast.Div) else times),)
        if isinstance(node, ast.BinOp):
            for kept in (node.left, node.right):
                yield (code.edit(node, code.alone(f"{code.bracketed(kept)} / {over}", node)),)
        if isinstance(node, ast.Call) and called(node) in ("div", "mul", "true_divide", "multiply", "divide"):
            yield (code.edit(node.args[-1], over if "div" in called(node) else times),)


def _scale_of_call(code: Code) -> Iterator[Edits]:
    """torch's own function with the scale that it has by default."""
    for keyword in ast.walk(code.node):
        if (
            isinstance(keyword, ast.keyword)
            and keyword.arg == "scale"
            and called(code.node) == "scaled_dot_product_attention"
        ):
            yield (code.edit(keyword.value, "None"),)


def _scale_twice(_: Rescaled, code: Code, __: Suspect) -> Iterator[Edits]:
    node = code.node
    if isinstance(node, ast.BinOp):
        yield from ((code.edit(node, code.alone(code.bracketed(kept), node)),) for kept in (node.left, node.right))
    if isinstance(node, ast.AugAssign):
        yield (code.edit(node, "pass"),)
    if isinstance(node, ast.Call) and receiver(node) is not None:
        yield (code.edit(node, code.of(receiver(node) or node)),)


def _scale_floored(_: Rescaled, code: Code, suspect: Suspect) -> Iterator[Edits]:
    node = code.node
    if suspect.kind == "scale-factor-floored":
        inner = (each for each in ast.walk(node) if isinstance(each, ast.BinOp) and isinstance(each.op, ast.FloorDiv))
        node = next(inner, node)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv):
        text = f"{code.of(node.left)} / {code.of(node.right)}"
        between = _between(code, node.left, node.right)
        yield (code.edit(node, code.of(node).replace(between, between.replace("//", "/"))),) if between else ()
        yield (code.edit(node, text),)
    if isinstance(node, ast.AugAssign):
        yield (code.edit(node, code.of(node).replace("//=", "/=")),)
    if isinstance(node, ast.Call):
        for keyword in node.keywords:
            if keyword.arg == "rounding_mode":
                yield (code.edit(keyword.value, "None"),)
        if called(node) in ("floor", "round", "trunc", "int", "long", "floor_divide"):
            yield from ((code.edit(node, code.of(kept)),) for kept in (receiver(node), *node.args) if kept is not None)


def _between(code: Code, left: ast.expr, right: ast.expr) -> str:
    """The text between two operands on one line."""
    a, b = code.edit(left, ""), code.edit(right, "")
    text = code.lines[a.end_line - 1][a.end_column : b.column] if a.end_line == b.line else ""
    return text if text.count("//") == 1 else ""


def _scale_late(where: Rescaled, code: Code, suspect: Suspect) -> Iterator[Edits]:
    scores = code_at(where.scores)
    for (edit,) in _scale_twice(where, code, suspect):
        root = where.root(code)
        if suspect.values.get("factor") == "1" and scores is not None and root:
            text = scores.alone(f"{scores.of(scores.node)} / {root}", scores.node)
            yield (edit, scores.edit(scores.node, text))
        else:
            yield (edit,)


SCALES: dict[str, Callable[[Rescaled, Code, Suspect], Iterator[Edits]]] = {
    "scale-missing": _scale_missing, "scale-wrong": _scale_wrong, "scale-inverted": _scale_wrong,
    "scale-twice": _scale_twice, "scale-floor-division": _scale_floored, "scale-after-softmax": _scale_late,
}  # fmt: skip
