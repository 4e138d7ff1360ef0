"""Mask repair: a mask applied as it is meant, in the softmax itself or inverted in torch's attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from headwise.dataflow import (
    AttentionOps,
    MarkedOp,
    Run,
    allowed_by,
    find_pattern,
    hidden_in_layer,
    is_layer,
    place_of,
    sample_of,
    source_of,
)
from headwise.diagnosis.checks.mask_path import reached_by
from headwise.diagnosis.repair import Hiding
from headwise.recording import Recalled, Site, tensors

__all__ = ["hiding", "inverted", "is_inverted_triangle"]

# below it no score of numbers near 1 lies
FAR = -1e3


def hiding(
    run: Run, attention: AttentionOps, on_path: list[MarkedOp], source: int | None = None
) -> dict[Site, Callable[..., Any]]:
    """What would hide the right keys: every use of the mask is undone, and the softmax hides them itself.

    source: the argument of whose keys the mask is, None: of all; those of others stay.
    """
    softmax = attention.softmax
    if attention.fused:
        return _fused_stand_ins(run, attention)
    if softmax is None:
        return {}
    marks = softmax.given[0]
    if marks is None or marks.kind != "pair":
        return {}
    sight = find_pattern(attention)
    if sight is None:
        return {}
    samples, rows, columns = int(sight.sample.max()) + 1, int(sight.row.max()) + 1, int(sight.column.max()) + 1
    allowed = allowed_by(run, samples, rows, columns)
    if allowed is None:
        return {}
    x, y = marks.arrays[attention.looks], marks.arrays[attention.keys]
    open_to = allowed[sample_of(x), place_of(x), place_of(y)]
    if source is not None:
        open_to = open_to | (source_of(y) != source)
    out: dict[Site, Callable[..., Any]] = {softmax.site: Hiding(softmax.function, open_to)}
    for entry in on_path:
        place = next((at for at, each in enumerate(entry.given) if each is not None and each.kind == "pair"), 0)
        if entry.joint is None and entry is not softmax:
            out[entry.site] = _undone(place)
    return out


def _fused_stand_ins(run: Run, attention: AttentionOps) -> dict[Site, Callable[..., Any]]:
    """torch's own attention, called with the mask as it is meant."""
    entry = attention.context
    a, b = entry.given[:2]
    if is_layer(entry):
        return _layer_stand_ins(run, attention)
    if entry.last != "scaled_dot_product_attention" or a is None or b is None or len(a.shape) != 4:
        return {}
    x = a.arrays["t"][..., 0][..., None]
    y = b.arrays["t"][..., 0].repeat_interleave(max(1, a.shape[1] // b.shape[1]), dim=1)[..., None, :]
    size = [int(place_of(each).max()) + 1 for each in (x, y)]
    allowed = allowed_by(run, int(sample_of(x).max()) + 1, *size)
    if allowed is None:
        return {}
    open_to = allowed[sample_of(x), place_of(x), place_of(y)]
    return {entry.site: Recalled(entry.function, {"attn_mask": open_to})}


def _layer_stand_ins(run: Run, attention: AttentionOps) -> dict[Site, Callable[..., Any]]:
    """torch's own layer, called with the mask as it is meant, and with what else hides keys from it as it was."""
    sight = find_pattern(attention)
    size = [] if sight is None else [int(each.max()) + 1 for each in (sight.sample, sight.row, sight.column)]
    if sight is None or (allowed := allowed_by(run, *size)) is None:
        return {}
    entry, reached = attention.context, reached_by(run)
    masks = [each for each, tensor in zip(entry.tensors, entry.inputs, strict=True) if tensor.number in reached]
    return hidden_in_layer(entry, allowed[sight.sample, sight.row, sight.column], masks)


def _undone(place: int) -> Callable[..., Any]:
    return lambda *args, **options: list(tensors((args, options)))[place]


def inverted(function: Callable[..., Any]) -> Callable[..., Any]:
    """A call of torch's attention whose mask allows what the given one masks, and the other way round."""

    def right(*args: Any, **options: Any) -> Any:
        mask = options.pop("attn_mask", args[3] if len(args) > 3 else None)
        return function(*args[:3], attn_mask=None if mask is None else _turned(mask), **options)

    return right


def is_inverted_triangle(entry: MarkedOp) -> bool:
    """Whether the mask of a call, the other way round, lets queries attend to earlier keys and to their own only."""
    args, options = entry.rules
    mask = options.get("attn_mask", args[3] if len(args) > 3 else None)
    if not isinstance(mask, Tensor) or mask.ndim < 2 or mask.shape[-1] != mask.shape[-2]:
        return False
    allowed = _turned(mask)
    allowed = allowed if allowed.dtype is torch.bool else allowed == 0
    lower = torch.ones(mask.shape[-2:], dtype=torch.bool, device=mask.device).tril()
    return not bool((allowed & ~lower).any()) and bool(torch.equal(allowed.reshape(-1, *lower.shape).any(0), lower))


def _turned(mask: Tensor) -> Tensor:
    if mask.dtype is torch.bool:
        return ~mask
    return torch.zeros_like(mask).masked_fill(mask > FAR, float("-inf"))
