"""State dict: whether another instance that loads a `state_dict` gives the same output."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from headwise.calls import Plan
from headwise.dataflow import MarkedOp, Run
from headwise.diagnosis.checks.parameters import held, holder_of
from headwise.diagnosis.coverage import Missed, Tried
from headwise.diagnosis.modules import module_at, parameter_at
from headwise.diagnosis.repair import Change, Repair
from headwise.diagnosis.suspects import Suspect
from headwise.source import Span, assigned

__all__ = ["saving_suspects"]

OTHER = 23
NEAR = 1e-7


def saving_suspects(plan: Plan, run: Run, rerun: Callable[..., Run]) -> tuple[list[Suspect], Tried]:
    """What a `state_dict` does not hold though the output depends on it; and what was tried.

    run: a run of the plan.
    """
    target = run.target
    if not isinstance(plan.target, type) or not isinstance(target, nn.Module):
        return [], Missed("doctor.missed.no_class")
    state = {name: each.detach().clone() for name, each in _state(target).items()}
    late = _made_late(plan, run)
    if late:
        return [_unsaved(run, late, target)], True
    refused: list[str] = []

    def load(other: Any, _: dict[str, Any]) -> None:
        try:
            other.load_state_dict(state)
        except RuntimeError as error:
            refused.append(str(error))

    second = rerun(plan=plan, instance=OTHER, more_change=load)
    if refused or second.failure is not None or second.output is None or run.output is None:
        return [], Missed("doctor.missed.not_loaded")
    if second.output.shape == run.output.shape and bool(
        ((second.output - run.output).detach().abs().nan_to_num() <= NEAR).all()
    ):
        return [], True
    results = {tensor.number for entry in run.seen for tensor in entry.outputs}
    for a, b in zip(run.seen, second.seen, strict=False):
        holder = _foreign(a, b, results, target)
        if holder is not None:
            module, name = holder
            span = _assigned(target, module, name) or a.span
            weights = list(held(getattr(module, name), 0))
            if not any(not isinstance(weight, nn.Parameter) or weight.requires_grad for weight in weights):
                # what is frozen may be kept out of the way on purpose
                return [], True
            kind = "buffer-unsaved" if name in module._buffers else "parameters-unregistered"
            change = _registering(target, module, name)
            return [Suspect(kind, span, Repair(change=change), values={"name": name})], True
    return [], True


def _assigned(target: nn.Module, module: nn.Module, name: str) -> Span | None:
    """Where a person's own code put a tensor, or the module of torch's that holds it, into a module."""
    full = f"{next(path for path, each in target.named_modules() if each is module)}.{name}".lstrip(".")
    parts = full.split(".")
    for count in range(len(parts) - 1, -1, -1):
        owner = module_at(target, ".".join(parts[:count]))
        span = None if type(owner).__module__.startswith("torch.") else assigned(owner, [parts[count]])
        if span is not None:
            return span
    return None


def _registering(target: nn.Module, module: nn.Module, name: str) -> Change | None:
    """What makes a buffer of a tensor that is kept elsewhere; None: it is one of several."""
    path = next(name for name, each in target.named_modules() if each is module)
    if not isinstance(getattr(module, name), Tensor):
        return None

    def change(instance: Any, _: dict[str, Any]) -> None:
        place = module_at(instance, path)
        value = getattr(place, name)
        if name not in place._buffers:
            delattr(place, name)
        place.register_buffer(name, value.detach())

    return change


def _state(target: nn.Module) -> dict[str, Tensor]:
    return {name: each for name, each in target.state_dict().items() if isinstance(each, Tensor)}


def _made_late(plan: Plan, run: Run) -> list[str]:
    """The parameters that a module has only after it was called: no optimizer that was made before knows them."""
    fresh = plan.build(run.sizes)
    if not isinstance(fresh, nn.Module):
        return []
    before = {name for name, _ in fresh.named_parameters()}
    return [name for name, _ in run.target.named_parameters() if name not in before]


def _unsaved(run: Run, names: list[str], target: nn.Module) -> Suspect:
    ids = {id(parameter_at(target, name)) for name in names}
    entry = next((op for op in run.seen if any(id(t) in ids for t in op.tensors)), None)
    span = None if entry is None else entry.span
    return Suspect("parameter-created-in-forward", span, values={"name": names[0]})


def _foreign(first: MarkedOp, second: MarkedOp, numbers: set[int], target: nn.Module) -> tuple[nn.Module, str] | None:
    """Where what differs between two instances is kept: the module and its attribute. numbers: by the run itself."""
    for x, y, tensor in zip(first.inputs, second.inputs, first.tensors, strict=False):
        if x.number in numbers or x.value is None or y.value is None or x.value.shape != y.value.shape:
            continue
        if not torch.allclose(x.value.nan_to_num().double(), y.value.nan_to_num().double(), atol=NEAR):
            holder = holder_of(target, tensor)
            if holder is not None:
                return holder
    return None
