"""State dict: whether another instance that loads a `state_dict` gives the same output."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from headwise.calls import Plan
from headwise.dataflow import MarkedOp, Run
from headwise.diagnosis.checks.parameters import holder_of
from headwise.diagnosis.coverage import Missed, Tried
from headwise.diagnosis.members import module_at, parameter_at
from headwise.diagnosis.suspects import Change, Suspect
from headwise.source import Span, assigned

__all__ = ["saving_suspects"]

OTHER = 23
NEAR = 1e-7


def saving_suspects(plan: Plan, done: Run, rerun: Callable[..., Run]) -> tuple[list[Suspect], Tried]:
    """What a `state_dict` does not hold though the output depends on it; and what was tried.

    done: a run of the plan.
    """
    target = done.target
    if not isinstance(plan.target, type) or not isinstance(target, nn.Module):
        return [], Missed("doctor.missed.no_class")
    state = {name: each.detach().clone() for name, each in _state(target).items()}
    late = _made_late(plan, done)
    if late:
        return [_unsaved(done, late, target)], True
    refused: list[str] = []

    def load(other: Any, _: dict[str, Any]) -> None:
        try:
            other.load_state_dict(state)
        except RuntimeError as error:
            refused.append(str(error))

    other = rerun(plan=plan, instance=OTHER, more_change=load)
    if refused or other.record.failure is not None or other.output is None or done.output is None:
        return [], Missed("doctor.missed.not_loaded")
    if other.output.shape == done.output.shape and bool(
        ((other.output - done.output).detach().abs().nan_to_num() <= NEAR).all()
    ):
        return [], True
    made = {each.number for entry in done.seen for each in entry.operation.outputs}
    for a, b in zip(done.seen, other.seen, strict=False):
        found = _foreign(a, b, made, target)
        if found is not None:
            module, name = found
            span = _assigned(target, module, name) or a.operation.span
            kind = "buffer-unsaved" if name in module._buffers else "parameters-unregistered"
            change = _registering(target, module, name)
            return [Suspect(kind, span, said={"name": name}, change=change)], True
    return [], True


def _assigned(target: nn.Module, module: nn.Module, name: str) -> Span | None:
    """Where a person's own code put a tensor, or the module of torch's that holds it, into a module."""
    full = f"{next(path for path, each in target.named_modules() if each is module)}.{name}".lstrip(".")
    parts = full.split(".")
    for count in range(len(parts) - 1, -1, -1):
        owner = module_at(target, ".".join(parts[:count]))
        found = None if type(owner).__module__.startswith("torch.") else assigned(owner, [parts[count]])
        if found is not None:
            return found
    return None


def _registering(target: nn.Module, module: nn.Module, name: str) -> Change | None:
    """What makes a buffer of a tensor that is kept elsewhere; None: it is one of several."""
    path = next(name for name, each in target.named_modules() if each is module)
    if not isinstance(getattr(module, name), Tensor):
        return None

    def change(other: Any, _: dict[str, Any]) -> None:
        place = module_at(other, path)
        value = getattr(place, name)
        if name not in place._buffers:
            delattr(place, name)
        place.register_buffer(name, value.detach())

    return change


def _state(target: nn.Module) -> dict[str, Tensor]:
    return {name: each for name, each in target.state_dict().items() if isinstance(each, Tensor)}


def _made_late(plan: Plan, done: Run) -> list[str]:
    """The parameters that a module has only after it was called: no optimizer that was made before knows them."""
    fresh = plan.build(done.sizes)
    if not isinstance(fresh, nn.Module):
        return []
    before = {name for name, _ in fresh.named_parameters()}
    return [name for name, _ in done.target.named_parameters() if name not in before]


def _unsaved(done: Run, names: list[str], target: nn.Module) -> Suspect:
    own = {id(parameter_at(target, name)) for name in names}
    entry = next((each for each in done.seen if any(id(t) in own for t in each.tensors)), None)
    span = None if entry is None else entry.operation.span
    return Suspect("parameter-created-in-forward", span, said={"name": names[0]})


def _foreign(first: MarkedOp, second: MarkedOp, made: set[int], target: nn.Module) -> tuple[nn.Module, str] | None:
    """Where what differs between two instances is kept: the module and its attribute. made: by the run itself."""
    for x, y, tensor in zip(first.operation.inputs, second.operation.inputs, first.tensors, strict=False):
        if x.number in made or x.value is None or y.value is None or x.value.shape != y.value.shape:
            continue
        if not torch.allclose(x.value.nan_to_num().double(), y.value.nan_to_num().double(), atol=NEAR):
            found = holder_of(target, tensor)
            if found is not None:
                return found
    return None
