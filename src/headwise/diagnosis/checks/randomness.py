"""Randomness: what is drawn anew in each call between scores and weights, though the module is in eval mode."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from headwise.dataflow import AttentionOps, MarkedOp, Run, attentions
from headwise.diagnosis.suspects import Suspect
from headwise.recording import site_of

__all__ = ["random_suspects"]


def random_suspects(run: Run, entry: MarkedOp) -> list[Suspect]:
    """That an operation draws numbers which change the weights. What is drawn elsewhere may be meant so, as the first
    slots of slot attention.
    """
    if not any(_is_between(entry, each) for each in attentions(run)):
        return []
    function, name = entry.function, entry.last.strip("_")

    def right(*args: Any, **options: Any) -> Any:
        if name == "gumbel_softmax":
            return torch.softmax(args[0] if args else options["logits"], dim=options.get("dim", -1))
        made = function(*args, **options)
        return torch.zeros_like(made) if isinstance(made, Tensor) else made

    return [Suspect("random-in-eval", entry.operation.span, {site_of(entry.operation): right}, said={"name": name})]


def _is_between(entry: MarkedOp, attention: AttentionOps) -> bool:
    first = attention.path[0] if attention.path else attention.context
    return first.at <= entry.at < attention.context.at
