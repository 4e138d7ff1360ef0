"""Edges: what is only a warning: rows that may see nothing, and half precision."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from headwise.diagnosis.anatomy import attentions
from headwise.diagnosis.running import Run
from headwise.diagnosis.suspects import Suspect
from headwise.recording.calls import Plan

__all__ = ["edge_suspects"]


def edge_suspects(plan: Plan, rerun: Callable[..., Run]) -> list[Suspect]:
    """Warnings about a plan with a mask."""
    said = plan.call.get("_mask")
    if not isinstance(said, Mapping):
        return []
    out = []
    means, name = str(said["means"]), str(said["argument"])
    if means != "lengths":

        def change(_: Any, options: dict[str, Any]) -> None:
            mask = options.get(name)
            if isinstance(mask, Tensor):
                closed = {"attend": 0.0, "blocked": 1.0}.get(means, float("-inf"))
                options[name] = torch.full_like(mask, closed)

        done = rerun(plan=plan, more_change=change)
        found = attentions(done)
        if done.record.failure is None and done.output is not None and bool(done.output.isnan().any()) and found:
            entry = found[0].softmax or found[0].context
            out.append(Suspect("mask-nan", entry.operation.span, severity="warning", proved=True))
    try:
        failure = rerun(plan=plan, dtype=torch.float16).record.failure
    except (RuntimeError, NotImplementedError, TypeError):
        # what it is called with cannot be made in half precision
        failure = None
    if failure is not None and "overflow" in str(failure.error):
        error = f"float16: {failure.error}"
        out.append(Suspect("mask-raises", failure.span, severity="warning", said={"error": error}, proved=True))
    return out
