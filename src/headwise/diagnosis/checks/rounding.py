"""Rounding: numbers of a scale that // has rounded down, even to 0, and what a file says of its scale."""

from __future__ import annotations

import ast
import inspect
import io
import linecache
import re
import tokenize
from collections.abc import Callable, Mapping
from dataclasses import replace
from math import floor, isclose, prod, sqrt
from typing import Any

from torch import Tensor, nn

from headwise.diagnosis.following.anatomy import makers
from headwise.diagnosis.following.factors import Factor, Scale
from headwise.diagnosis.following.origins import own_number
from headwise.diagnosis.following.replacing import site_of
from headwise.diagnosis.following.running import Run
from headwise.diagnosis.following.written import written_in
from headwise.diagnosis.suspects import Suspect
from headwise.recording import Span
from headwise.recording.identity import tensors

__all__ = ["as_rounded", "erased", "says_root"]

ROOT = re.compile(r"√|根号|平方根|sqrt|square root|scaled[ _-]*dot|缩放点积", re.IGNORECASE)
# what stands where the whole width is meant
WHOLE = re.compile(r"\bmup\b|μp|µp|μ-?p|maximal.update|mutransfer|μtransfer|1\s*/\s*\(?(d|dim|head|width|n_embd)",
                   re.IGNORECASE)  # fmt: skip


def says_root(run: Run, scale: Scale) -> bool:
    """Whether the words beside the code say that scores are divided by a root, and nothing says that they are not."""
    entry = scale.attention.scores or scale.attention.context
    lines = linecache.getlines(entry.operation.span.file)
    text = "".join(lines)
    names = [type(each).__name__ for each in run.target.modules()] if isinstance(run.target, nn.Module) else []
    said = "\n".join([*_words(text), *(re.sub(r"(?<=[a-z])(?=[A-Z])", " ", each) for each in names)])
    return ROOT.search(said) is not None and WHOLE.search(said) is None and "mup" not in text.lower()


def _words(text: str) -> list[str]:
    """The comments and the texts that stand by themselves in a file."""
    out: list[str] = []
    try:
        tree = ast.parse(text)
        read = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (SyntaxError, ValueError, tokenize.TokenError):
        return out
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            out.append(inspect.cleandoc(node.value.value))
    return out + [each.string for each in read if each.type == tokenize.COMMENT]


def erased(run: Run, scale: Scale, wanted: float, said: Mapping[str, object]) -> list[Suspect]:
    """Scores that a number multiplies by 0: all keys have one weight."""
    for each in scale.factors:
        if each.value == 0 and _is_number(run, each):
            others = prod(one.value for one in scale.factors if one is not each) or 1.0
            entry = each.entry
            right = _given(next(at for at, m in enumerate(entry.given) if m is not None), wanted / others)
            suspect = Suspect(
                "scale-wrong", entry.operation.span, {site_of(entry.operation): right}, words="scale_erased",
                said={"factor": "0", "wanted": f"{wanted:.4g}", **said},
                home=written_in(run.target, entry.operation.span, _is_nothing, is_number=True)
                or own_number(entry.operation),
            )  # fmt: skip
            return [as_rounded(suspect, 0.0, scale.width)]
    return []


def as_rounded(suspect: Suspect, total: float, width: int) -> Suspect:
    """What is wrong with a scale, told as what // does to it where that is what made its number."""
    root = sqrt(width)
    known = (0.0, 1 / floor(root), 1.0 / (width // root))
    if not any(isclose(total, each, rel_tol=1e-3) for each in known) or not _divides(suspect.home or suspect.span):
        return suspect
    return replace(suspect, kind="scale-floor-division", words="scale_rounded")


def _divides(span: Span | None) -> bool:
    """Whether a place has a division without a remainder of what is more than sizes."""
    lines = [] if span is None else linecache.getlines(span.file)
    try:
        tree = ast.parse("".join(lines))
    except (SyntaxError, ValueError):
        return False
    return span is not None and any(
        isinstance(each, ast.BinOp) and isinstance(each.op, ast.FloorDiv)
        and span.line <= each.lineno <= (span.end_line or span.line)
        and any(isinstance(part, ast.Call | ast.Pow) or isinstance(getattr(part, "value", None), float)
                for part in ast.walk(each))
        for each in ast.walk(tree)
    )  # fmt: skip


def _is_number(run: Run, factor: Factor) -> bool:
    """Whether what something is multiplied by is a number of the code, and nothing that is learned or computed."""
    others = [
        (tensor, seen.number)
        for tensor, seen, marks in zip(
            factor.entry.tensors, factor.entry.operation.inputs, factor.entry.given, strict=True
        )
        if marks is None
    ]
    return all(
        tensor.numel() == 1 and not isinstance(tensor, nn.Parameter) and not makers(run, factor.entry.at, number)
        for tensor, number in others
    )


def _is_nothing(value: Any) -> bool:
    if isinstance(value, Tensor):
        return value.numel() == 1 and not bool(value.any())
    return isinstance(value, int | float) and not isinstance(value, bool) and value == 0


def _given(place: int, factor: float) -> Callable[..., Any]:
    """A stand-in that multiplies one of its operands by a number, whatever the other is."""

    def right(*args: Any, **options: Any) -> Any:
        return list(tensors((args, options)))[place] * factor

    return right
