"""Padding: whether the mask that a model makes of its own tokens hides padding from the other tokens."""

from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from headwise.dataflow import AttentionPattern, MarkedOp, Run, attentions, find_pattern, source_of
from headwise.diagnosis.checks.head_split import spoken
from headwise.diagnosis.checks.weight_sums import TOLERANCE
from headwise.diagnosis.distance import distance
from headwise.diagnosis.suspects import Change, Suspect, both
from headwise.source import Span

__all__ = [
    "Padding",
    "changed_tokens",
    "compared_with",
    "is_called_padding",
    "meets_scores",
    "padded",
    "padding_suspects",
    "paddings",
    "speaks_of_padding",
]

COMPARED = frozenset({"==", "!=", "eq", "ne", ">", "gt"})
# what says that padding comes before the tokens
FRONT = re.compile(
    r"\b(?:left|front)\b[^.\n]{0,24}\bpad|\bpad\w*\b[^.\n]{0,40}\b(?:left|front)\b|左侧?填充", re.IGNORECASE
)
PAD = re.compile(r"pad|填充|补齐|补零|补位", re.IGNORECASE)
# what the two sides of a translation are called
SIDES = (("src", "source", "enc"), ("tgt", "trg", "target", "dec"))
# what a comparison is written with besides what it compares
WORDS = frozenset({"self", "torch", *COMPARED})


@dataclass(frozen=True)
class Padding:
    """The number that tokens are compared with. name: of the argument; other: of a token; entry: the comparison."""

    name: str
    number: int
    other: int
    entry: MarkedOp


def padding_suspects(exam: Any, free: Run) -> list[Suspect]:
    """What is wrong with a mask made of tokens, where some of these are padding. free: the run in which none is."""
    for padding in paddings(free):
        if not meets_scores(free, padding.entry):
            continue
        if (mixed := _other_number(free, padding)) is not None:
            return [Suspect("padding-of-other", mixed[0], said={"name": mixed[1]}, proved=True)]
        bare = free
        if bool((free.given[padding.name] == padding.number).any()):
            bare = exam.run(change=changed_tokens(exam, padding, lambda tokens: tokens))
        # padding behind is hidden anyway where each sees those before it; in front it is where words say so, and a mask
        # that was put right has none there
        is_in_front = not exam.stand_ins and any(FRONT.search(line) for line in spoken(type(free.target)))
        for way in (padded(padding), *((_padded_before(padding),) if is_in_front else ())):
            run: Run = exam.run(change=changed_tokens(exam, padding, way))
            tokens = run.given.get(padding.name)
            if run.failure is not None or tokens is None or len(attentions(run)) != len(attentions(bare)):
                continue
            if kind := _kind_of(run, bare, padding, tokens == padding.number):
                return [_suspect(exam, kind, padding, run, tokens == padding.number)]
    return []


def _kind_of(run: Run, bare: Run, padding: Padding, pads: Tensor) -> str:
    """What is wrong with the mask of the first attention in which it is. bare: without padding."""
    for a, b in zip(attentions(run), attentions(bare), strict=True):
        masked, plain = find_pattern(a), find_pattern(b)
        if masked is None or plain is None or masked.weights.shape != plain.weights.shape:
            continue
        is_own = not bool((masked.source != run.sources[padding.name]).any())
        if is_own and (kind := _kind(masked, plain, pads)):
            return kind
    return ""


def _other_number(run: Run, padding: Padding) -> tuple[Span, str] | None:
    """Where tokens of one side of a translation are compared with the padding of the other, and the attribute that
    names their own; None: they are not.
    """
    own = next((side for side in SIDES if padding.name.startswith(side)), ())
    for span in (padding.entry.span, *reversed(padding.entry.operation.chain)) if own else ():
        for attribute in set(re.findall(r"[^\W\d]\w*", span.source or "")) - {padding.name}:
            other = next((word for side in SIDES if side != own for word in side if attribute.startswith(word)), "")
            named = [word + attribute.removeprefix(other) for word in own] if other and PAD.search(attribute) else []
            for name in named:
                is_other = getattr(run.target, name, padding.number) != padding.number
                if is_other and not re.search(rf"\b{name}\b", span.source or ""):
                    return span, name
    return None


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
            known = out.get((name, number))
            is_better = known is None or (not meets_scores(run, known.entry) and meets_scores(run, entry))
            if others.numel() and is_better and _is_padding(run, entry, name, number):
                out[name, number] = Padding(name, number, int(others.min()), entry)
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


def changed_tokens(exam: Any, padding: Padding, way: Callable[[Tensor], Tensor]) -> Change:
    """The tokens with no padding among them, in another way."""

    def change(_: Any, options: dict[str, Any]) -> None:
        tokens = options.get(padding.name)
        if isinstance(tokens, Tensor):
            options[padding.name] = way(tokens.masked_fill(tokens == padding.number, padding.other))

    return change if exam.change is None else both(exam.change, change)


def padded(padding: Padding) -> Callable[[Tensor], Tensor]:
    """The last tokens of each sample are padding, of each another number."""

    def pad(tokens: Tensor) -> Tensor:
        for sample, count in enumerate(_counts(*tokens.shape)):
            tokens[sample, count:] = padding.number
        return tokens

    return pad


def _padded_before(padding: Padding) -> Callable[[Tensor], Tensor]:
    """The first tokens of each sample are padding, of each another number."""

    def pad(tokens: Tensor) -> Tensor:
        return padded(padding)(tokens.flip(1)).flip(1).contiguous()

    return pad


def _counts(samples: int, length: int) -> list[int]:
    """How many tokens of each sample are no padding."""
    return [max(1, length - 1 - sample % max(1, length - 1)) for sample in range(samples)]


def _kind(masked: AttentionPattern, free: AttentionPattern, pads: Tensor) -> str:
    samples, length = pads.shape
    if int(masked.column.max()) >= length or int(masked.sample.max()) >= samples:
        return ""
    hidden = pads[masked.sample, masked.column]
    is_pad = torch.zeros_like(hidden[..., :1])
    if int(masked.row.max()) == int(masked.column.max()):
        is_pad = pads[masked.sample, masked.row][..., :1]
    # where nothing is padding a mask the wrong way round hides all
    before = free.visible if bool(free.visible.any()) else torch.ones_like(free.visible)
    visible, right, wrong = masked.visible & before, before & ~hidden, before & hidden
    real = ~is_pad & right.any(dim=-1, keepdim=True) & wrong.any(dim=-1, keepdim=True)
    if not bool(real.any()) or bool(((visible == right) | ~real).all()):
        return ""
    if bool(((visible == wrong) | ~real).all()):
        return "mask-inverted"
    # whole queries, those that are padding, see nothing, or all alike
    level = masked.weights.nan_to_num()
    share = (level * before).sum(dim=-1, keepdim=True) / before.sum(dim=-1, keepdim=True).clamp(min=1)
    is_level = (((level - share).abs() < TOLERANCE) | ~before).all(dim=-1, keepdim=True)
    is_turned = bool(is_pad.any()) and bool((is_level | ~is_pad).all()) and bool(((visible == before) | ~real).all())
    # where real tokens see all alike too, the mask hides every token of the sample
    is_turned &= not bool((is_level & real & (before.sum(dim=-1, keepdim=True) > 1)).any())
    return "mask-axis" if is_turned else ""


def _suspect(exam: Any, kind: str, padding: Padding, run: Run, pads: Tensor) -> Suspect:
    comparison = next(op for op in run.seen if op.span == padding.entry.span)
    span = comparison.span
    numbers = comparison.results
    for entry in run.seen[comparison.at + 1 :]:
        if numbers & entry.taken:
            if any(marks is not None and marks.kind == "pair" for marks in (*entry.given, *entry.output_marks)):
                break
            numbers |= entry.results
            is_moved = entry.is_movement or entry.name == "index"
            span = entry.span if kind == "mask-axis" and is_moved else span
    error = _apart(exam, padding, run, pads)
    return Suspect(
        kind, span, said={"leak": "100%", "how": "padded", "_tokens": padding.name}, proved=error > TOLERANCE,
        evidence=f"{error:.4g}" if error > TOLERANCE else "",
    )  # fmt: skip


def _apart(exam: Any, padding: Padding, run: Run, pads: Tensor) -> float:
    """By how much the output of a sample's tokens differs from what they give without the padding; 0: not known."""
    samples, length = pads.shape
    counts = _counts(samples, length)
    output = run.output
    if output is None or output.ndim < 2 or tuple(output.shape[:2]) != (samples, length) or bool(pads[:, 0].any()):
        return 0.0
    alone: Run = exam.run(change=changed_tokens(exam, padding, lambda tokens: tokens[:, : counts[-1]].contiguous()))
    if alone.failure is not None or alone.output is None or alone.output.shape[1] != counts[-1]:
        return 0.0
    padded, bare = output[-1, : counts[-1]], alone.output[-1]
    return distance(padded, bare)
