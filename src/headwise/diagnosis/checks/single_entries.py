"""Single entries: a softmax over an axis that has one entry, whatever the inputs are."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from headwise.calls import parameters
from headwise.dataflow import Manner, MarkedOp, Run
from headwise.dataflow import run as run_plan
from headwise.diagnosis.plans.small_sizes import distinct
from headwise.diagnosis.suspects import Suspect
from headwise.source import Span

__all__ = ["single_entries"]

# so many times as many tokens
MORE = 4
SOFTMAXES = frozenset({"softmax", "softmin", "log_softmax"})


def single_entries(run: Run) -> list[Suspect]:
    """The first softmax over an axis of one entry whose weights are used; none where an input has such an axis, or
    a class holds a number that is one, which may be what it runs over.
    """
    if 1 in (run.sizes.get(name) for name in ("L", "S")) or any(1 in each.shape for each in run.named.values()):
        return []
    if _has_one(run.target):
        return []
    taken = {tensor.number for entry in run.seen for tensor in entry.inputs}
    softmaxes = [(entry, _axis(entry)) for entry in run.seen if entry.last in SOFTMAXES]
    # the first of a loop over tokens has one key, and the next more
    wider = {entry.span for entry, axis in softmaxes if axis is not None and entry.inputs[0].shape[axis] > 1}
    singles = []
    for entry, axis in softmaxes:
        shape = entry.inputs[0].shape
        is_single = axis is not None and shape[axis] == 1 and any(size > 1 for size in shape)
        if is_single and entry.results & taken and entry.span not in wider:
            singles.append(entry.span)
    further = _wider_with_more(run) if singles else set[Span]()
    return [Suspect("softmax-single-entry", span, proved=True) for span in singles if span not in further][:1]


def _wider_with_more(run: Run) -> set[Span]:
    """The softmaxes that have several entries where there are more tokens: these may have been halved several times.
    Where such a call fails, which have is not known of any.
    """
    lengths = {name: MORE * run.sizes[name] for name in ("L", "S") if name in run.sizes}
    sizes = distinct(run.plan, {**run.sizes, **lengths})
    weights = run.target.parameters() if isinstance(run.target, nn.Module) else ()
    dtype = next((weight.dtype for weight in weights if weight.is_floating_point()), torch.float64)
    longer = run_plan(run.plan, Manner(dtype), sizes=sizes, own=tuple({entry.span.file for entry in run.seen}))
    if longer.failure is not None:
        return {entry.span for entry in run.seen}
    softmaxes = ((entry, _axis(entry)) for entry in longer.seen if entry.last in SOFTMAXES)
    return {entry.span for entry, axis in softmaxes if axis is not None and entry.inputs[0].shape[axis] > 1}


def _has_one(target: Any) -> bool:
    """Whether a class that is not torch's keeps the number 1, or is built with it, or with one of something."""
    modules = target.modules() if isinstance(target, nn.Module) else ()
    user_modules = [module for module in modules if not type(module).__module__.startswith("torch.")]
    kept = [value for module in user_modules for name, value in vars(module).items() if not name.startswith("_")]
    return any(
        map(_is_one, [*kept, *(parameter.default for module in user_modules for parameter in parameters(type(module)))])
    )


def _is_one(value: Any) -> bool:
    return (type(value) is int and value == 1) or (isinstance(value, list | tuple) and len(value) == 1)


def _axis(entry: MarkedOp) -> int | None:
    """Along which axis of its input, from the front; None: that is not said."""
    axis = entry.options.get("dim", next(iter(entry.args[1:2]), None))
    return axis % len(entry.inputs[0].shape) if type(axis) is int and entry.inputs[0].shape else None
