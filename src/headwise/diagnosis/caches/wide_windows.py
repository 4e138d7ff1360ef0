"""Wide windows: a cache that keeps as many tokens as a window holds, beside which a step sees its own as one more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from headwise.dataflow import Decoded, Decoder, MarkedOp, is_constant
from headwise.diagnosis.caches.decoding_calls import in_call
from headwise.diagnosis.caches.law import Breach, breach_of
from headwise.diagnosis.repair import Repair
from headwise.diagnosis.suspects import Suspect

__all__ = ["wide_suspects"]


def wide_suspects(decoder: Decoder, breach: Breach, decoded: Decoded) -> list[Suspect]:
    """The cut of what is kept, where the law holds once it leaves one token more behind."""
    cuts = [entry for at in range(breach.at + 1) for entry in in_call(decoded, at) if _cut_axis(entry) is not None]
    if breach.is_chunk or not cuts:
        return []
    stand_ins = {entry.site: _narrower(entry, max(_kept(each) for each in cuts if each.site == entry.site))
                 for entry in cuts}  # fmt: skip
    if breach_of(decoder, breach.way, breach.cuts, stand_ins=stand_ins) is not None:
        return []
    evidence = f"{breach.distance:.4g}"
    return [Suspect("cache-window-wide", cuts[0].span, Repair(stand_ins), proved=True, evidence=evidence)]


def _cut_axis(entry: MarkedOp) -> int | None:
    """The axis along which an operation takes some of the tokens, from the end; None: it is no such, or takes all."""
    marks = entry.output_marks[0] if entry.output_marks else None
    if entry.name != "index" or marks is None or marks.kind != "token":
        return None
    before, after = entry.inputs[0].shape, entry.outputs[0].shape
    cut = [at - len(before) for at, sizes in enumerate(zip(before, after, strict=False)) if sizes[0] > sizes[1] > 1]
    # features that are cut, as the halves of a rotation, are of the same token
    is_of_tokens = len(before) == len(after) and len(cut) == 1 and not is_constant(marks.arrays["t"], cut[0])
    return cut[0] if is_of_tokens else None


def _kept(entry: MarkedOp) -> int:
    return entry.outputs[0].shape[_cut_axis(entry) or -1]


def _narrower(entry: MarkedOp, most: int) -> Callable[..., Any]:
    """What takes one token less where an operation takes the most that it does."""
    function, axis = entry.function, _cut_axis(entry) or -1

    def right(*args: Any, **options: Any) -> Any:
        out = function(*args, **options)
        is_full = isinstance(out, Tensor) and out.shape[axis] == most
        return out.narrow(axis, 1, most - 1) if is_full else out

    return right
