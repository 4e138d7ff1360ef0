"""Padding: whether the mask that a model makes of its own tokens hides padding from the other tokens."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from headwise.dataflow import AttentionPattern, Run, attentions, find_pattern
from headwise.diagnosis.checks.weight_sums import TOLERANCE
from headwise.diagnosis.distance import distance
from headwise.diagnosis.examination import Examination
from headwise.diagnosis.padding_tokens import PAD, Padding, is_said_in_front, meets_scores, paddings
from headwise.diagnosis.repair import Change, both
from headwise.diagnosis.suspects import Suspect
from headwise.source import Span

__all__ = ["changed_tokens", "padded", "padding_suspects"]

# what the two sides of a translation are called
SIDES = (("src", "source", "enc"), ("tgt", "trg", "target", "dec"))


def padding_suspects(exam: Examination, free: Run) -> list[Suspect]:
    """What is wrong with a mask made of tokens, where some of these are padding. free: the run in which none is."""
    for padding in paddings(free):
        if not meets_scores(free, padding.entry):
            continue
        if (mixed := _other_number(free, padding)) is not None:
            return [Suspect("padding-of-other", mixed[0], values={"name": mixed[1]}, proved=True)]
        bare = free
        if bool((free.given[padding.name] == padding.number).any()):
            bare = exam.run(change=changed_tokens(exam, padding, lambda tokens: tokens))
        # padding behind is hidden anyway where each sees those before it; in front it is where words say so, and a mask
        # that was put right has none there
        is_in_front = not exam.stand_ins and is_said_in_front(type(free.target))
        for way in (padded(padding), *((_padded_before(padding),) if is_in_front else ())):
            run: Run = exam.run(change=changed_tokens(exam, padding, way))
            tokens = run.given.get(padding.name)
            if run.failure is not None or tokens is None or len(attentions(run)) != len(attentions(bare)):
                continue
            pads = padding.laid(tokens) == padding.number
            if kind := _kind_of(run, bare, padding, pads):
                return [_suspect(exam, kind, padding, run, pads)]
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


def changed_tokens(exam: Examination, padding: Padding, way: Callable[[Tensor], Tensor]) -> Change:
    """The tokens with no padding among them, in another way."""

    def change(_: Any, options: dict[str, Any]) -> None:
        tokens = options.get(padding.name)
        if isinstance(tokens, Tensor):
            real = tokens.masked_fill(tokens == padding.number, padding.token)
            options[padding.name] = padding.given(way(padding.laid(real)))

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


def _suspect(exam: Examination, kind: str, padding: Padding, run: Run, pads: Tensor) -> Suspect:
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
        kind, span, values={"leak": "100%", "how": "padded"}, is_of_tokens=True, proved=error > TOLERANCE,
        evidence=f"{error:.4g}" if error > TOLERANCE else "",
    )  # fmt: skip


def _apart(exam: Examination, padding: Padding, run: Run, pads: Tensor) -> float:
    """By how much the output of a sample's tokens differs from what they give without the padding; 0: not known."""
    samples, length = pads.shape
    counts = _counts(samples, length)
    output = None if run.output is None or run.output.ndim < 2 else padding.laid(run.output)
    if output is None or tuple(output.shape[:2]) != (samples, length) or bool(pads[:, 0].any()):
        return 0.0
    alone: Run = exam.run(change=changed_tokens(exam, padding, lambda tokens: tokens[:, : counts[-1]].contiguous()))
    if alone.failure is not None or alone.output is None or alone.output.shape[padding.axis] != counts[-1]:
        return 0.0
    padded, bare = output[-1, : counts[-1]], padding.laid(alone.output)[-1]
    return distance(padded, bare)
