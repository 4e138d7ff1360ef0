"""Rounded scale: numbers of a scale that // has rounded down, even to 0, and what a file says of its scale."""

from __future__ import annotations

import ast
import inspect
import io
import linecache
import re
import tokenize
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import floor, isclose, prod, sqrt
from typing import Any

from torch import Tensor, nn

from headwise.dataflow import Run, makers
from headwise.diagnosis.patches.scales import Rescaled
from headwise.diagnosis.repair import Repair
from headwise.diagnosis.scale_factors import Factor, Scale
from headwise.diagnosis.suspects import Suspect
from headwise.recording import tensors
from headwise.source import Span, file_tree, own_number, written_in

__all__ = ["as_rounded", "erased", "says_root"]

ROOT = re.compile(r"√|根号|平方根|sqrt|square root|scaled[ _-]*dot|缩放点积", re.IGNORECASE)
# words that there is none
UNROOTED = re.compile(
    r"\b(?:no|without|never|not (?:divided|scaled)(?: by)?)\b[^.\n]{0,12}(?:√|sqrt|square root)"
    r"|(?:没有|不除以|不用)[^。\n]{0,8}(?:√|根号|平方根)",
    re.IGNORECASE,
)
# what makes a fraction a whole number
ZERO = re.compile(r"(?<![\w.])0(?:\.0*)?(?![\w.])")
ROUNDED = re.compile(r"//|\b(?:int|round|floor|trunc|long|int32|int64)\b")
# what stands where the whole width is meant
WHOLE = re.compile(r"\bmup\b|μp|µp|μ-?p|maximal.update|mutransfer|μtransfer|1\s*/\s*\(?(d|dim|head|width|n_embd)",
                   re.IGNORECASE)  # fmt: skip


def says_root(scale: Scale, homes: Sequence[Span | None] = ()) -> bool:
    """Whether the words of the class or function that computes the scores say that they are divided by a root, and
    nothing in its file says that they are not. homes: where numbers of theirs were made.
    """
    operation = (scale.attention.scores or scale.attention.context).operation
    text = "".join(linecache.getlines(operation.span.file))
    words = _words(operation.span.file)
    prose = "\n".join(each for _, each in words)
    if WHOLE.search(prose) is not None or "mup" in text.lower():
        return False
    gone = {each.line for each in (operation.span, *operation.chain) if each.file == operation.span.file}
    near = {at for home in homes if home is not None for at in range(home.line - 1, (home.end_line or home.line) + 1)}
    tree = file_tree(operation.span.file)
    parts = [
        part for node in (tree.body if tree is not None else ()) for part in _around(node, operation.span.line, gone)
    ]
    near_words = [each for line, each in words if line in near or any(line in lines for _, lines in parts)]
    near_words = [each for each in near_words if not UNROOTED.search(each)]
    names = [re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name) for name, _ in parts]
    return ROOT.search("\n".join([*near_words, *names])) is not None


def _around(node: ast.stmt, line: int, gone: set[int]) -> Iterator[tuple[str, range]]:
    """The names of the class and the functions that a line is in and that led there, with the lines of their words; of
    a class those of its own, and of its methods those that ran.
    """
    if not isinstance(node, ast.ClassDef | ast.FunctionDef) or not node.lineno <= line <= (node.end_lineno or 0):
        return
    if isinstance(node, ast.FunctionDef):
        yield node.name, range(node.lineno - 2, (node.end_lineno or 0) + 1)
        return
    methods = [statement for statement in node.body if isinstance(statement, ast.FunctionDef)]
    yield node.name, range(node.lineno - 2, methods[0].lineno - len(methods[0].decorator_list) if methods else line)
    for part in methods:
        if any(part.lineno <= line_run <= (part.end_lineno or 0) for line_run in gone):
            yield part.name, range(part.lineno, (part.end_lineno or 0) + 1)


def _words(file: str) -> list[tuple[int, str]]:
    """The comments and the texts that stand by themselves in a file, each with its first line."""
    tree = file_tree(file)
    if tree is None:
        return []
    texts = [(node.lineno, node.value.value) for node in ast.walk(tree)
             if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)]  # fmt: skip
    out = [(line, inspect.cleandoc(text)) for line, text in texts if isinstance(text, str)]
    # a file that is Python has tokens
    read = tokenize.generate_tokens(io.StringIO("".join(linecache.getlines(file))).readline)
    return out + [(each.start[0], each.string) for each in read if each.type == tokenize.COMMENT]


def erased(run: Run, scale: Scale, wanted: float, written: Rescaled) -> list[Suspect]:
    """Scores that a number multiplies by 0: all keys have one weight. A number that was rounded down to that is wrong,
    and so is a 0 that stands there; any other may be raised later, as in a warm-up, and is noted.
    """
    for factor in scale.factors:
        if factor.value == 0 and _is_number(run, factor):
            others = prod(f.value for f in scale.factors if f is not factor) or 1.0
            entry = factor.entry
            right = _given(next(at for at, m in enumerate(entry.given) if m is not None), wanted / others)
            suspect = Suspect(
                "scale-zero",
                entry.span,
                Repair({entry.site: right}, rewriting=written),
                values={"factor": "0", "wanted": f"{wanted:.4g}"},
                home=written_in(run.target, entry.span, _is_nothing, is_number=True) or own_number(entry.span),
            )
            rounded = as_rounded(suspect, 0.0, scale.width)
            is_made = any(ROUNDED.search(_source(place)) for place in (suspect.span, suspect.home) if place is not None)
            is_written = ZERO.search(entry.span.source) is not None
            return [rounded if is_made or is_written else replace(rounded, severity="note")]
    return []


def _source(span: Span) -> str:
    return "".join(linecache.getlines(span.file)[span.line - 1 : span.end_line or span.line])


def as_rounded(suspect: Suspect, total: float, width: int) -> Suspect:
    """What is wrong with a scale, told as what // does to it where that is what made its number."""
    root = sqrt(width)
    floored = (0.0, 1 / floor(root), 1.0 / (width // root))
    if not any(isclose(total, each, rel_tol=1e-3) for each in floored) or not _divides(suspect.home or suspect.span):
        return suspect
    return replace(suspect, kind="scale-factor-floored")


def _divides(span: Span | None) -> bool:
    """Whether a place has a division without a remainder of what is more than sizes."""
    tree = None if span is None else file_tree(span.file)
    return span is not None and any(
        isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv)
        and span.line <= node.lineno <= (span.end_line or span.line)
        and any(isinstance(part, ast.Call | ast.Pow) or isinstance(getattr(part, "value", None), float)
                for part in ast.walk(node))
        for node in ast.walk(tree or ast.Pass())
    )  # fmt: skip


def _is_number(run: Run, factor: Factor) -> bool:
    """Whether what something is multiplied by is a number of the code, and nothing that is learned or computed."""
    others = [
        (tensor, operand.number)
        for tensor, operand, marks in zip(factor.entry.tensors, factor.entry.inputs, factor.entry.given, strict=True)
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
