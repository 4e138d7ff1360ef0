"""Padding tokens: the numbers that tokens are compared with, and whether anything says that these are padding."""

from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from headwise.calls import Plan
from headwise.dataflow import MarkedOp, Run, attentions, axes_of, source_of
from headwise.diagnosis.checks.head_split import spoken
from headwise.source import Span

__all__ = [
    "PAD",
    "Padding",
    "compared_with",
    "is_called_padding",
    "is_said_in_front",
    "meets_scores",
    "paddings",
    "speaks_of_padding",
    "token_axis",
]

COMPARED = frozenset({"==", "!=", "eq", "ne", ">", "gt"})
# what says that padding comes before the tokens
FRONT = re.compile(
    r"\b(?:left|front)\b[^.\n]{0,24}\bpad|\bpad\w*\b[^.\n]{0,40}\b(?:left|front)\b|左侧?填充", re.IGNORECASE
)
PAD = re.compile(r"pad|填充|补齐|补零|补位", re.IGNORECASE)
# what a comparison is written with besides what it compares
WORDS = frozenset({"self", "torch", *COMPARED})


@dataclass(frozen=True)
class Padding:
    """The number that tokens are compared with. name: of the argument; token: another one; entry: the comparison; axis:
    that of the tokens.
    """

    name: str
    number: int
    token: int
    entry: MarkedOp
    axis: int = 1

    def laid(self, tokens: Tensor) -> Tensor:
        """The argument as (batch, tokens)."""
        return tokens.movedim(self.axis, 1)

    def given(self, tokens: Tensor) -> Tensor:
        """What is (batch, tokens), as the argument is given."""
        return tokens.movedim(1, self.axis)


def token_axis(plan: Plan, name: str) -> int:
    """The axis of tokens of an argument that has one of samples beside it."""
    return 0 if axes_of(plan.call.get(name))[1:] == ["B"] else 1


def paddings(run: Run) -> list[Padding]:
    """What the tokens of each argument are compared with, each number once: where that comes to scores, if it does."""
    names = [name for name, shape in run.plan.call.items() if isinstance(shape, Mapping) and "_ids" in shape]
    out: dict[tuple[str, int], Padding] = {}
    for entry in run.seen:
        if entry.name not in COMPARED or len(entry.args) < 2 or not entry.given or entry.given[0] is None:
            continue
        marks, number = entry.given[0], _whole(entry.args[1])
        if marks.kind != "token" or number is None or entry.tensors[0].is_floating_point():
            continue
        for name in names:
            tokens = run.named.get(name)
            is_it = tokens is not None and bool((source_of(marks.arrays["t"]) == run.sources[name]).all())
            if tokens is None or not is_it or tokens.ndim != 2 or number < 0:
                continue
            others = tokens[tokens != number]
            before = out.get((name, number))
            is_better = before is None or (not meets_scores(run, before.entry) and meets_scores(run, entry))
            if others.numel() and is_better and _is_padding(run, entry, name, number):
                out[name, number] = Padding(name, number, int(others.min()), entry, token_axis(run.plan, name))
    return list(out.values())


def _is_padding(run: Run, entry: MarkedOp, name: str, number: int) -> bool:
    """Whether anything says that a number of tokens is padding: a table of embeddings, or words where it is compared.

    Other tokens that are asked for, as landmarks are, may be all that is seen.
    """
    modules = run.target.modules() if isinstance(run.target, nn.Module) else ()
    if any(isinstance(module, nn.Embedding) and module.padding_idx == number for module in modules):
        return True
    return is_called_padding(entry, name)


def is_called_padding(entry: MarkedOp, name: str) -> bool:
    """Whether the words where tokens of an argument are compared with a number say that it is padding."""
    operation = entry.operation
    compared = set(re.findall(r"[^\W\d]\w*", operation.span.source or "")) - {name, *WORDS}
    if PAD.search(" ".join(compared)):
        return True
    if any(isinstance(node, ast.Name | ast.Attribute) for node in compared_with(operation.span.source or "")):
        # it has a name, and that is another one
        return False
    return speaks_of_padding(operation.span, *operation.chain)


def speaks_of_padding(*spans: Span) -> bool:
    """Whether the function of the first of some places, their lines, or the comments before them speak of padding."""
    lines = [line for span in spans for line in _beside(span)]
    return PAD.search("\n".join([spans[0].function, *lines])) is not None


def compared_with(source: str) -> Iterator[ast.expr]:
    """What a comparison compares its left side with."""
    try:
        tree = ast.parse(source.strip(), mode="eval")
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            yield from node.comparators
        elif isinstance(node, ast.Call) and node.args:
            yield node.args[-1]


def _beside(span: Span) -> Iterator[str]:
    """The lines of a place, and the comments right before them."""
    lines = linecache.getlines(span.file)
    yield from lines[span.line - 1 : span.end_line or span.line]
    for line in reversed(lines[: span.line - 1]):
        if not line.strip().startswith("#"):
            return
        yield line


def is_said_in_front(kind: type) -> bool:
    """Whether the words of a class say that padding comes before the tokens."""
    return any(FRONT.search(line) for line in spoken(kind))


def meets_scores(run: Run, entry: MarkedOp) -> bool:
    """Whether what a comparison gives comes to scores as a mask does, and not in the features of tokens."""
    numbers = entry.results
    fused = {attention.context.at for attention in attentions(run) if attention.fused}
    for op in run.seen[entry.at + 1 :]:
        if not numbers & op.taken:
            continue
        others = [marks for marks in op.given if marks is not None]
        if op.at in fused or any(marks.kind == "pair" for marks in others):
            return True
        is_of_features = any(
            marks is not None and marks.kind == "token" and tensor.is_floating_point() and operand.number not in numbers
            for marks, tensor, operand in zip(op.given, op.tensors, op.inputs, strict=True)
        )
        if not is_of_features:
            numbers |= op.results
    return False


def _whole(value: Any) -> int | None:
    if isinstance(value, Tensor) and value.numel() == 1 and not value.is_floating_point():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
