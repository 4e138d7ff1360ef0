"""Candidates: how the source of what was found wrong could be written, the likeliest first; the doctor tries them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from headwise.diagnosis.patches.expressions import called, moved, queries_of, receiver, with_argument
from headwise.diagnosis.patches.masks import REMASKED
from headwise.diagnosis.patches.names import RENAMED
from headwise.diagnosis.patches.no_ops import removes, without_idle
from headwise.diagnosis.patches.rotary import rotated
from headwise.diagnosis.suspects import Suspect
from headwise.source import Code, Edits, Span, code_at

__all__ = ["candidates"]

MOST = 4
_NUMBER = ast.Constant | ast.UnaryOp


def candidates(suspect: Suspect) -> tuple[Edits, ...]:
    """Edits of the person's file, each a whole of its own."""
    code = code_at(suspect.span)
    written = WRITTEN.get(suspect.kind) or WRITTEN.get(suspect.general)
    if written is None or code is None:
        return ()
    out: list[Edits] = []
    for proposed in written(code, suspect):
        edits = without_idle(code, proposed)
        if edits and edits not in out and not removes(code, edits, suspect):
            out.append(edits)
    return tuple(out[:MOST])


def _root(suspect: Suspect, power: str = "0.5") -> str:
    """The root of the head width, as it can be said where the scores are made."""
    scores = code_at(_span(suspect, "_scores"))
    if scores is None or suspect.span is None or suspect.span.function != _function(suspect):
        return ""
    queries, axis = queries_of(scores)
    return f"{queries}.shape[{axis}] ** {power}" if queries else ""


def _span(suspect: Suspect, name: str) -> Span | None:
    span = suspect.said.get(name)
    return span if isinstance(span, Span) else None


def _function(suspect: Suspect) -> str:
    span = _span(suspect, "_scores")
    return "" if span is None else span.function


def _scale_missing(code: Code, suspect: Suspect) -> Iterator[Edits]:
    yield from _scale_of_call(code)
    if root := _root(suspect):
        is_sum = isinstance(code.node, ast.BinOp) and isinstance(code.node.op, ast.Add | ast.Sub)
        whole = code.bracketed(code.node) if is_sum else code.of(code.node)
        yield (code.edit(code.node, code.alone(f"{whole} / {root}", code.node)),)


def _scale_wrong(code: Code, suspect: Suspect) -> Iterator[Edits]:
    node = code.node
    yield from _scale_of_call(code)
    for width in (*_names(suspect), ""):
        over, times = (f"{width} ** 0.5", f"{width} ** -0.5") if width else (_root(suspect), _root(suspect, "-0.5"))
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


def _names(suspect: Suspect) -> tuple[str, ...]:
    widths = suspect.said.get("_widths")
    return tuple(f"self.{width}" for width in widths) if isinstance(widths, tuple) else ()


def _scale_twice(code: Code, _: Suspect) -> Iterator[Edits]:
    node = code.node
    if isinstance(node, ast.BinOp):
        yield from ((code.edit(node, code.alone(code.bracketed(kept), node)),) for kept in (node.left, node.right))
    if isinstance(node, ast.AugAssign):
        yield (code.edit(node, "pass"),)
    if isinstance(node, ast.Call) and receiver(node) is not None:
        yield (code.edit(node, code.of(receiver(node) or node)),)


def _scale_floored(code: Code, suspect: Suspect) -> Iterator[Edits]:
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


def _scale_late(code: Code, suspect: Suspect) -> Iterator[Edits]:
    scores = code_at(_span(suspect, "_scores"))
    for (edit,) in _scale_twice(code, suspect):
        root = _root(suspect)
        if suspect.said.get("factor") == "1" and scores is not None and root:
            text = scores.alone(f"{scores.of(scores.node)} / {root}", scores.node)
            yield (edit, scores.edit(scores.node, text))
        else:
            yield (edit,)


def _softmax_axis(code: Code, suspect: Suspect) -> Iterator[Edits]:
    code = code_at(suspect.home) or code
    node = code.node.value if isinstance(code.node, ast.Assign) else code.node
    inner = node.func if isinstance(node, ast.Call) and isinstance(node.func, ast.Call) else node
    arguments: list[ast.expr] = [each for each in getattr(inner, "args", ()) if isinstance(each, _NUMBER)]
    places = [keyword.value for keyword in getattr(inner, "keywords", ()) if keyword.arg in ("dim", "axis")]
    places += [*arguments[-1:], *([node] if isinstance(node, _NUMBER) else [])]
    for axis in dict.fromkeys(("-1", str(suspect.said.get("axis", -1)))):
        yield from ((code.edit(place, axis),) for place in places)
    if not isinstance(node, ast.Call):
        return
    if called(node) not in ("softmax", "log_softmax") and len(node.args) == 1 and suspect.home is None:
        yield (code.edit(node, f"{code.bracketed(node.args[0])}.softmax(dim=-1)"),)
    elif not arguments and not node.keywords and node.args:
        yield (code.edit(node.args[-1], f"{code.of(node.args[-1])}, dim=-1"),)


def _softmax_missing(code: Code, suspect: Suspect) -> Iterator[Edits]:
    yield (code.edit(code.node, f"({code.of(code.node)}).softmax(dim={suspect.said.get('axis', -1)})"),)


def _softmax_replaced(code: Code, suspect: Suspect) -> Iterator[Edits]:
    scores = receiver(code.node) or next(iter(getattr(code.node, "args", [])), getattr(code.node, "left", None))
    if isinstance(scores, ast.expr):
        yield (code.edit(code.node, f"{code.bracketed(scores)}.softmax(dim={suspect.said.get('axis', -1)})"),)


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


def _dropout_early(code: Code, suspect: Suspect) -> Iterator[Edits]:
    """The dropout of the scores, of the weights instead."""
    node, softmax = code.node, code_at(_span(suspect, "_softmax"))
    if softmax is None or not isinstance(node, ast.Call) or not node.args:
        return
    scores, weights = code.of(node.args[0]), softmax.of(softmax.node)
    if any(code.edit(each, "") == code.edit(node, "") for each in ast.walk(softmax.node) if isinstance(each, ast.Call)):
        within = weights.replace(code.of(node), scores, 1)
        yield (softmax.edit(softmax.node, with_argument(code, node.args[0], within)),)
    else:
        yield (code.edit(node, scores), softmax.edit(softmax.node, with_argument(code, node.args[0], weights)))


def _dropout_twice(code: Code, _: Suspect) -> Iterator[Edits]:
    """The input of the second dropout in its place."""
    if isinstance(code.node, ast.Call) and code.node.args:
        yield (code.edit(code.node, code.bracketed(code.node.args[0])),)


def _einsum(code: Code, suspect: Suspect) -> Iterator[Edits]:
    """The einsum with other letters."""
    written = next((node for node in getattr(code.node, "args", [])[:1] if isinstance(node, ast.Constant)), None)
    if written is not None and (equation := suspect.said.get("_equation")):
        yield (code.edit(written, code.of(written).replace(str(written.value), str(equation))),)


def _turned(code: Code, suspect: Suspect) -> Iterator[Edits]:
    """A rotation that is called where it should be, or its parts joined with other signs and in another order."""
    signs, node = suspect.said.get("_signs"), code.node
    if signs is None:
        yield from rotated(code, suspect)
    if not signs or not isinstance(signs, tuple):
        return
    if isinstance(node, ast.BinOp):
        yield (code.edit(node, f"{code.of(node.left)} {'+' if signs[1][1] > 0 else '-'} {code.bracketed(node.right)}"),)
    parts = node.args[0] if isinstance(node, ast.Call) and node.args else None
    if isinstance(parts, ast.List | ast.Tuple) and len(parts.elts) == len(signs):
        text = ", ".join(_signed(code, parts.elts[at], sign) for at, sign in signs)
        yield (code.edit(parts, f"[{text}]" if isinstance(parts, ast.List) else f"({text})"),)


def _signed(code: Code, node: ast.expr, sign: int) -> str:
    if sign > 0:
        return code.of(node)
    is_minus = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
    return code.of(node.operand) if is_minus and isinstance(node, ast.UnaryOp) else f"-{code.bracketed(node)}"


def _gradient_cut(code: Code, _: Suspect) -> Iterator[Edits]:
    node = code.node
    if isinstance(node, ast.Call) and called(node) in ("detach", "clone", "item") and receiver(node) is not None:
        yield (code.edit(node, code.of(receiver(node) or node)),)
    if isinstance(node, ast.Attribute) and node.attr == "data":
        yield (code.edit(node, code.of(node.value)),)


def _groups(code: Code, suspect: Suspect) -> Iterator[Edits]:
    node, axis = code.node, suspect.said.get("_axis")
    if isinstance(node, ast.Call) and isinstance(axis, int) and called(node) in ("repeat", "tile"):
        tensor = receiver(node)
        if tensor is not None and axis < len(node.args):
            text = f"{code.of(tensor)}.repeat_interleave({code.of(node.args[axis])}, dim={axis})"
            yield (code.edit(node, text),)


def _length(code: Code, suspect: Suspect) -> Iterator[Edits]:
    node, place = code.node, suspect.said.get("_place")
    if not isinstance(node, ast.Call) or not isinstance(place, int):
        return
    sizes = node.args[0].elts if len(node.args) == 1 and isinstance(node.args[0], ast.Tuple | ast.List) else node.args
    tensor = receiver(node)
    if place < len(sizes):
        yield (code.edit(sizes[place], "-1"),)
        if tensor is not None:
            yield (code.edit(sizes[place], f"{code.bracketed(tensor)}.shape[1]"),)


def _contiguous(code: Code, _: Suspect) -> Iterator[Edits]:
    node = code.node
    if isinstance(node, ast.Call) and called(node) == "view" and isinstance(node.func, ast.Attribute):
        yield (code.edit(node.func, f"{code.of(node.func.value)}.contiguous().view"),)


WRITTEN: dict[str, Callable[[Code, Suspect], Iterator[Edits]]] = {
    "scale-missing": _scale_missing, "scale-wrong": _scale_wrong, "scale-inverted": _scale_wrong,
    "scale-twice": _scale_twice, "scale-floor-division": _scale_floored, "scale-after-softmax": _scale_late,
    "softmax-axis": _softmax_axis, "softmax-missing": _softmax_missing, "softmax-replaced": _softmax_replaced,
    "split-without-transpose": moved,
    "merge-without-transpose": moved, "heads-batch-swapped": moved, "key-not-transposed": moved,
    "dropout-in-eval": _dropout_in_eval, "dropout-before-softmax": _dropout_early,
    "rotary-wrong": _turned, "gradient-cut": _gradient_cut, "groups-tiled": _groups, "mask-repeat-order": _groups,
    "key-uses-query-length": _length, "view-noncontiguous": _contiguous, **RENAMED, **REMASKED,
    "dropout-twice": _dropout_twice, "einsum-weights-summed": _einsum,
}  # fmt: skip
