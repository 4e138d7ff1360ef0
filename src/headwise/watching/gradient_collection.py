"""Gradient collection: what a backward pass brings to the outputs of watched calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from torch import Tensor

from headwise.maps.weight_gradients import OutputGradient
from headwise.watching.record import CallRecord

__all__ = ["collected"]

EDITED = "is changed by hw.intervene, whose edits stand between its weights and its output: take them out"
DROPPED = "drops some of its weights at random: call model.eval() first"
UNKNOWN = "has values that could not be followed"
UNREACHED = (
    "ran without autograd: run it outside of torch.no_grad(), with an input or a parameter that requires a gradient"
)


def collected(
    record: CallRecord, output: Tensor, rows: Callable[[Tensor], Tensor | None], *, is_edited: bool
) -> CallRecord:
    """The record of a call, with the gradient that a backward pass will bring to its output.

    rows: gives the gradient of the output as that of what the heads gave, (B, Hq, Lq, Dv), None: it cannot be read.
    is_edited: whether other weights than its own make the output.
    """
    reason = EDITED if is_edited else DROPPED if record.dropout else UNKNOWN if record.v is None else ""
    if not reason and not output.requires_grad:
        reason = UNREACHED
    backward = OutputGradient(reason)
    if not reason:
        output.register_hook(lambda gradient: backward.add(rows(gradient)))
    return replace(record, backward=backward)
