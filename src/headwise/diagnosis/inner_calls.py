"""Inner calls: with which tensors a target calls the classes inside it, and whether a plan calls one alike."""

from __future__ import annotations

import contextlib
import copy
import inspect
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from headwise.calls import Plan, call_role
from headwise.dataflow import axes_of
from headwise.diagnosis.examination import Examination
from headwise.recording import seeded

__all__ = ["Calls", "is_alike", "note_calls"]

# what may be left out of a call that is to show how a class is meant to be called
BESIDE = ("mask", "bias", "lengths", "cache", "encoding", "cosine", "sine", "cosine_sine", "frequencies", "positions")
# of each class inside, the shapes of the tensors that it is called with
Calls = dict[type[nn.Module], list[dict[str, tuple[int, ...]]]]


def is_alike(plan: Plan, call: Mapping[str, tuple[int, ...]]) -> bool:
    """Whether a plan gives the inputs that a call gives, with as many axes, and keys as many as queries only where the
    call does. call: the shape of each tensor.
    """
    mask = plan.call.get("_mask")
    shapes = {name: list(axes) for name, value in plan.call.items() if (axes := axes_of(value))}
    if isinstance(mask, Mapping):
        shapes[str(mask["argument"])] = list(mask["shape"])
    inputs = {name for name in call if call_role(name) not in BESIDE}
    given = shapes.keys() & inputs
    if not inputs <= shapes.keys() | plan.call.keys() or any(len(shapes[name]) != len(call[name]) for name in given):
        return False
    sizes = [(axis, size) for name in given for axis, size in zip(shapes[name], call[name], strict=True)]
    queries, keys = ({size for axis, size in sizes if axis == letter} for letter in ("L", "S"))
    return not queries or not keys or queries != keys


def note_calls(calls: Calls, exam: Examination, kinds: Sequence[type[nn.Module]]) -> None:
    """Note the shapes of the tensors with which a target calls classes inside it, by the names of their arguments."""
    plan = exam.free
    with torch.no_grad(), seeded():
        try:
            target = plan.build(exam.sizes)
            target = copy.deepcopy(target) if target is plan.target else target
            args, options = plan.arguments(exam.sizes)
        except Exception:  # noqa: BLE001  a constructor may raise anything; then nothing is known
            return
        modules = target.modules() if isinstance(target, nn.Module) else ()
        # a module may be shared with the person's own code
        hooks = [
            module.register_forward_pre_hook(partial(_note, calls), with_kwargs=True)
            for module in modules
            if type(module) in kinds
        ]
        try:
            with contextlib.suppress(Exception):
                target(*args, **options)
        finally:
            for hook in hooks:
                hook.remove()


def _note(calls: Calls, module: nn.Module, args: tuple[Any, ...], options: dict[str, Any]) -> None:
    try:
        bound = inspect.signature(type(module).forward).bind(module, *args, **options).arguments
    except (TypeError, ValueError):
        return
    shapes = {name: tuple(value.shape) for name, value in bound.items() if isinstance(value, Tensor)}
    if shapes not in calls.setdefault(type(module), []):
        calls[type(module)].append(shapes)
