"""Backward: whether that of all a call gives runs, and what was changed in place although it is needed there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from headwise.dataflow import MarkedOp, Run, attentions
from headwise.diagnosis.repair import Repair
from headwise.diagnosis.suspects import Suspect
from headwise.recording import Site, is_out_of_memory, tensors

__all__ = ["apart", "backward_error", "broken_backward"]


def backward_error(run: Run) -> str:
    """What the backward of all that a run with gradients gives raised; "": it ran, or nothing asks for it."""
    outputs = [tensor for tensor in tensors(run.record.result) if tensor.requires_grad]
    if not outputs or not isinstance(run.target, nn.Module):
        return ""
    try:
        torch.stack([each.abs().sum() for each in outputs]).sum().backward()
    except RuntimeError as error:
        return "" if is_out_of_memory(error) else str(error).splitlines()[0]
    return ""


def broken_backward(run: Run, error: str, rerun: Callable[[dict[Site, Callable[..., Any]]], Run]) -> list[Suspect]:
    """What was changed in place although the backward needs it."""
    together: dict[Site, Callable[..., Any]] = {}
    first: MarkedOp | None = None
    # what is written into a mask of what was done already depends on no input
    writes = [entry for entry in run.seen if entry.operation.writes]
    for entry in [write for write in writes if write.is_marked] or writes:
        first = first or entry
        together[entry.site] = apart(entry)
        for stand_ins, place in (({entry.site: apart(entry)}, entry), (together, first)):
            repeated = rerun(dict(stand_ins))
            if repeated.failure is None and not backward_error(repeated):
                values = {"error": error}
                return [Suspect("inplace-breaks-backward", place.span, Repair(dict(stand_ins)), values=values)]
    last = attentions(run)[-1].context if attentions(run) else run.seen[-1]
    return [Suspect("inplace-breaks-backward", last.span, values={"error": error})]


def apart(entry: MarkedOp) -> Callable[..., Any]:
    """A stand-in that changes a copy, and not what it was given."""
    function = entry.function

    def right(*args: Any, **options: Any) -> Any:
        return function(args[0].clone(), *args[1:], **options)

    return right
