"""Masks: what hides keys from queries where a cache is, and later keys that nothing hides."""

from __future__ import annotations

from typing import Any

import torch

from headwise.dataflow import AttentionOps, Decoder, MarkedOp, Run
from headwise.diagnosis.caches.law import Breach, breach_of
from headwise.diagnosis.repair import Repair
from headwise.diagnosis.suspects import Suspect

__all__ = ["hides", "is_mask_alone", "is_rectangle", "unmasked_suspects"]

# scores below are those of hidden keys
FAR = -1e3
HIDING = ("masked_fill", "masked_fill_", "where", "tril", "triu", "__setitem__")


def hides(run: Run, entry: MarkedOp) -> bool:
    """Whether what reaches scores hides some of them: it is true or false, or far below zero."""
    numbers = entry.results
    for op in [entry, *run.seen[entry.at + 1 :]]:
        if op is not entry and not numbers & op.taken:
            continue
        if op is not entry and op.is_marked:
            return op.last in HIDING or any(_is_far(output.value) for output in op.outputs)
        if any(output.dtype == torch.bool or _is_far(output.value) for output in op.outputs):
            return True
        numbers |= op.results
    return any(marks is not None for marks in entry.output_marks)


def _is_far(value: Any) -> bool:
    return value is not None and value.is_floating_point() and value.numel() > 0 and float(value.min()) < FAR


def is_mask_alone(decoder: Decoder, breach: Breach, entry: MarkedOp) -> bool:
    """Whether the law holds with the mask of torch's attention alone put right: counted from the last key."""
    function = entry.function

    def right(*args: Any, **options: Any) -> Any:
        kept_as = {name: each for name, each in options.items() if name not in ("attn_mask", "is_causal")}
        rows, columns = args[0].shape[-2], args[1].shape[-2]
        visible = torch.ones(rows, columns, dtype=torch.bool).tril(columns - rows)
        return function(*args[:3], attn_mask=visible, **kept_as)

    if len(entry.args) < len("qkv"):
        return False
    return breach_of(decoder, breach.way, breach.cuts, stand_ins={entry.site: right}) is None


def is_rectangle(entry: MarkedOp) -> bool:
    """Whether a mask was made for several queries and more keys."""
    shape = entry.outputs[0].shape if entry.outputs else ()
    return len(shape) > 1 and 1 < shape[-2] < shape[-1] and all(marks is None for marks in entry.output_marks)


def unmasked_suspects(decoder: Decoder, breach: Breach, attention: AttentionOps) -> list[Suspect]:
    """Later keys of the same call that are not hidden with a cache, as they are without one."""
    softmax, place = attention.softmax, decoder.place
    if softmax is None or any(entry.last in HIDING for entry in attention.path if entry.at < softmax.at):
        return []
    function = softmax.function

    def right(scores: torch.Tensor, *args: Any, **options: Any) -> Any:
        rows, columns = scores.shape[-2:]
        if (rows, columns) != (place.end - place.first, place.end):
            return function(scores, *args, **options)
        visible = torch.ones(rows, columns, dtype=torch.bool).tril(columns - rows)
        return function(scores.masked_fill(~visible, float("-inf")), *args, **options)

    stand_ins = {softmax.site: right}
    if breach_of(decoder, breach.way, breach.cuts, stand_ins=stand_ins) is not None:
        return []
    return [Suspect("causal-cache", softmax.span, Repair(stand_ins), proved=True, evidence=f"{breach.distance:.4g}")]
