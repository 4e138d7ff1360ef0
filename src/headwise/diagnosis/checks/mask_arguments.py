"""Mask arguments: a default of None that no call can use, and torch's two ways to say one mask in one call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from headwise.calls import Plan, callee, parameters
from headwise.dataflow import Run
from headwise.diagnosis.suspects import Suspect
from headwise.recording import Failure

__all__ = ["default_suspects", "doubled_masks"]

# the places of attn_mask and is_causal among the arguments of scaled_dot_product_attention
MASK, CAUSAL = 3, 5


def doubled_masks(masked: Run) -> list[Suspect]:
    """Calls of scaled_dot_product_attention with attn_mask and is_causal=True, which torch documents as an error.

    masked: a run with a mask.
    """
    out = []
    for entry in masked.seen:
        if entry.last == "scaled_dot_product_attention":
            args, options = entry.rules
            mask = options.get("attn_mask", args[MASK] if len(args) > MASK else None)
            is_causal = options.get("is_causal", args[CAUSAL] if len(args) > CAUSAL else False)
            if isinstance(mask, torch.Tensor) and is_causal is True:
                out.append(Suspect("mask-beside-is-causal", entry.operation.span, proved=True))
    return out[:1]


def default_suspects(plan: Plan, rerun: Callable[..., Run]) -> list[Suspect]:
    """A mask whose default is None, without which the call raises since None is no tensor. plan: with the mask."""
    name = plan.mask
    if not any(each.name == name and each.default is None for each in parameters(callee(plan.target))):
        return []
    call = {key: each for key, each in plan.call.items() if key not in ("_mask", name)}
    failure = rerun(plan=replace(plan, call=call, mask="")).record.failure
    if failure is None or failure.span is None or not _is_of_none(failure):
        return []
    error = f"{type(failure.error).__name__}: {failure.error}".splitlines()[0][:300]
    return [Suspect("mask-default-raises", failure.span, said={"name": name, "error": error}, proved=True)]


def _is_of_none(failure: Failure) -> bool:
    """Whether an error comes of None where a tensor is needed."""
    error = failure.error
    if isinstance(error, AttributeError):
        return error.obj is None and "NoneType" in str(error)
    return isinstance(error, TypeError) and "NoneType" in str(error)
