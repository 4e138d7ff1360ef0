"""Other samples: whether masks and padding that only the other samples are given change the result of the first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from headwise.calls import Plan
from headwise.dataflow import MarkedOp, Run
from headwise.diagnosis.checks.batch_leak import differs, first_changed, samples_of
from headwise.diagnosis.checks.pooled_samples import attends_rows
from headwise.diagnosis.checks.repeated_masks import repeated_mask
from headwise.diagnosis.repair import Change
from headwise.diagnosis.suspects import Suspect

__all__ = ["changed_leaks", "mask_leaks"]


def changed_leaks(run: Run, rerun: Callable[..., Run], before: Change, after: Change) -> list[Suspect]:
    """Whether the first sample changes by what only the others are handed otherwise: the first operation in which it
    does, or the mask that is repeated for the heads in another order than the samples are.

    rerun: takes stand-ins and a change of the arguments; before, after: such changes.
    """
    samples, of_output = samples_of(run, rerun)
    if run.output is None or not samples or attends_rows(run):
        return []

    def differing(stand_ins: Any = None) -> tuple[Run, Run, bool] | None:
        """Both runs, and whether the first sample differs in them; None: that is not known."""
        runs = rerun(stand_ins, change=before), rerun(stand_ins, change=after)
        outputs = [each.output for each in runs if each.output is not None]
        if len(outputs) != 2 or any(each.shape != of_output.shape for each in outputs):
            return None
        return *runs, bool((differs(outputs[1], outputs[0]) & (of_output == 0)).any())

    pair = differing()
    if pair is None or not pair[2]:
        return []
    entry = first_changed(*pair[:2], 0) or pair[0].seen[-1]
    tiled = repeated_mask(pair[0], entry, lambda stand_ins: (differing(stand_ins) or (0, 0, True))[2] is False)
    return tiled or [Suspect("sample-leak", entry.span, proved=True)]


def mask_leaks(plan: Plan, rerun: Callable[..., Run]) -> list[Suspect]:
    """Whether the mask of one sample changes the result of another: the first operation in which it does."""
    declared = plan.call.get("_mask")
    if not isinstance(declared, Mapping) or [str(axis) for axis in declared["shape"]][:1] != ["B"]:
        return []
    name, means = str(declared["argument"]), str(declared["means"])

    def masked(**options: Any) -> Run:
        again: Run = rerun(plan=plan, **options)
        return again

    def change(_: Any, options: dict[str, Any]) -> None:
        mask = options.get(name)
        if isinstance(mask, Tensor):
            # the others hide nothing
            open_value = mask.max().item() if means == "lengths" else int(means == "attend")
            options[name] = torch.cat([mask[:1], torch.full_like(mask[1:], open_value)])

    run = masked()
    samples, of_output = samples_of(run, masked) if run.failure is None else ({}, torch.empty(0))
    if run.output is None or not samples:
        return []
    disturbed = masked(more_change=change)
    if disturbed.output is None or disturbed.output.shape != run.output.shape:
        return []
    if not bool((differs(disturbed.output, run.output) & (of_output == 0)).any()):
        return []
    entry = first_changed(run, disturbed, 0) or _first_along(run, disturbed, run.sizes.get("B", 0)) or run.seen[-1]
    return [Suspect("sample-leak", entry.span, proved=True)]


def _first_along(run: Run, rerun: Run, samples: int) -> MarkedOp | None:
    """The first operation whose result has one axis of so many samples, of which the first entry changes, where it is
    not known which samples lie along it.
    """
    for a, b in zip(run.seen, rerun.seen, strict=False):
        for x, y, marks in zip(a.outputs, b.outputs, a.output_marks, strict=False):
            axes = [axis for axis, size in enumerate(x.shape) if size == samples]
            if x.value is None or y.value is None or len(axes) != 1 or x.shape != y.shape:
                continue
            if (marks is not None and marks.kind == "token") or not x.value.is_floating_point():
                # what has no features may be the order of samples itself
                continue
            if bool(differs(x.value.select(axes[0], 0).double(), y.value.select(axes[0], 0).double()).any()):
                return a
    return None
