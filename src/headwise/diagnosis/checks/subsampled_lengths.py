"""Subsampled lengths: whether lengths that count what came are held against the fewer tokens made of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from math import prod
from typing import Any

import torch

from headwise.calls import Plan
from headwise.dataflow import MarkedOp, Run, attentions, find_pattern
from headwise.diagnosis.checks.head_split import spoken
from headwise.diagnosis.checks.mask_path import reached_by, uses
from headwise.diagnosis.suspects import Suspect

__all__ = ["unscaled_lengths"]

# how many frames there are, of which half are padding
FRAMES = 64
# how words say that lengths count what was made
AFTER = re.compile(r"after|subsampl|downsampl|reduced|output|tokens", re.IGNORECASE)
CUTS = frozenset({"index", "narrow", "__getitem__"})
COMPARED = frozenset({"<", "<=", ">", ">=", "lt", "le", "gt", "ge"})


def unscaled_lengths(plan: Plan, rerun: Callable[..., Run]) -> list[Suspect]:
    """The comparison of places with lengths that hides nothing, where tokens are fewer than the frames that came.

    In a run half of the frames are padding, as the lengths say, and none of the tokens is. Proved by a second run, in
    which the lengths are as many times shorter as tokens are fewer: there some are.
    """
    declared = plan.call.get("_mask")
    if not isinstance(declared, dict) or declared["means"] != "lengths" or plan.setting != "self":
        return []
    name = str(declared["argument"])
    if isinstance(plan.target, type) and any(name in line and AFTER.search(line) for line in spoken(plan.target)):
        return []

    def with_lengths(length: int) -> Run:
        def change(_: Any, options: dict[str, Any]) -> None:
            options[name] = torch.full_like(options[name], length)

        again: Run = rerun(plan=plan, sizes={**plan.sizes(0), "L": FRAMES}, more_change=change)
        return again

    run = with_lengths(FRAMES // 2)
    compared = _compared(run, name)
    if compared is not None and compared.value is not None and compared.value.shape[-1] == FRAMES:
        # cut to as many tokens as there are
        compared = _cut(run)
    tokens = 0 if compared is None or compared.value is None else compared.value.shape[-1]
    if compared is None or not 1 < tokens <= FRAMES // 2 or _differs(compared) or not _is_attended_by(run):
        return []
    there = with_lengths(tokens // 2)
    scaled = _cut(there) if compared.last in CUTS else _compared(there, name)
    if scaled is None or not _differs(scaled):
        return []
    operation = compared.operation
    # a function that is no method compares what it is given
    place = compared.span if "." in operation.span.function or not operation.chain else operation.chain[-1]
    return [Suspect("lengths-not-scaled", place, values={"name": name}, proved=True)]


def _cut(run: Run) -> MarkedOp | None:
    """The last operation that takes some entries of what is made of lengths for frames; None: there is none."""
    reached = reached_by(run)
    cuts = (
        entry for entry in reversed(run.seen) if entry.last in CUTS and reached & entry.taken and not entry.is_marked
    )
    return next((each for each in cuts if each.inputs[0].shape[-1] == FRAMES > each.outputs[0].shape[-1]), None)


def _compared(run: Run, name: str) -> MarkedOp | None:
    """The first operation that compares places with the lengths, or with what is made of them; None: none does."""
    lengths = run.named.get(name)
    if run.failure is not None or lengths is None:
        return None
    reached = reached_by(run)
    return next((
        entry for entry in run.seen
        if entry.name in COMPARED and entry.value is not None and entry.value.ndim > 1
        and any(prod(each.shape) == lengths.numel() for each in entry.inputs if each.number in reached)
    ), None)  # fmt: skip


def _differs(entry: MarkedOp) -> bool:
    """Whether a comparison tells some places from others."""
    return entry.value is not None and bool((entry.value != entry.value.flatten()[0]).any())


def _is_attended_by(run: Run) -> bool:
    """Whether an attention reads what was made of the lengths, and its keys are fewer than what came: lengths of a part
    of the keys count that part.
    """
    reached = reached_by(run)
    for attention in attentions(run):
        if any(uses(entry, reached) for entry in (*attention.path, attention.context)):
            sight = find_pattern(attention)
            if sight is None or sight.weights.shape[-1] < FRAMES:
                return True
    return False
