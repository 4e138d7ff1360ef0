"""Plain tensors: tensors that a module keeps as attributes, of which neither its parameters nor its buffers know."""

from __future__ import annotations

import ast

from torch import Tensor, nn

from headwise.calls import written
from headwise.dataflow import ADDITIONS, MarkedOp, Run
from headwise.diagnosis.suspects import Suspect
from headwise.source import assigned

__all__ = ["plain_tensors"]

# what brings a tensor to where another is
MOVES = frozenset({"to", "cuda", "cpu", "type_as"})
PRODUCTS = frozenset({"*", "*=", "mul", "mul_", "multiply"})


def plain_tensors(run: Run) -> list[Suspect]:
    """A tensor that is made with the module and kept as a plain attribute: the module is moved without it, and if it
    changes nothing until it is trained, and the class itself never changes it, it never will.
    """
    if not isinstance(run.target, nn.Module):
        return []
    plain = [
        (path, module, name, value)
        for path, module in run.target.named_modules()
        for name, value in vars(module).items()
        if isinstance(value, Tensor) and value.ndim and not type(module).__module__.startswith("torch.")
    ]
    # what a call leaves there is made where the call is
    fresh = run.plan.build(run.sizes) if plain else None
    fresh_modules = dict(fresh.named_modules()) if isinstance(fresh, nn.Module) else {}
    for path, module, name, value in plain:
        user = next((entry for entry in run.seen if any(t is value for t in entry.tensors)), None)
        is_made = isinstance(vars(fresh_modules.get(path, module)).get(name), Tensor) and path in fresh_modules
        if is_made and user is not None and user.last not in MOVES:
            span = assigned(module, [name]) or user.span
            is_idle = _changes_nothing(run, value) and not _is_changed(run, type(module), name)
            kind = "parameters-unregistered" if is_idle else "buffer-unregistered"
            return [Suspect(kind, span, values={"name": name}, proved=True)]
    return []


def _is_changed(run: Run, kind: type, name: str) -> bool:
    """Whether the code of a class gives an attribute a value more than once, or changes the one it has."""
    nodes = [node for _, tree in written(kind, run.plan.namespace) for node in ast.walk(tree)]
    stored = [node for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)]
    parts = [node.value for node in nodes if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)]
    calls = [node.func for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    parts += [function.value for function in calls if function.attr.endswith("_")]
    changed = [ast.unparse(part).removesuffix(".data") for part in parts]
    return sum(node.attr == name for node in stored) > 1 or any(text.endswith(f".{name}") for text in changed)


def _changes_nothing(run: Run, value: Tensor) -> bool:
    """Whether a tensor of zeros is only added, or one of ones only multiplied with, and never written to: it is there
    for the optimizer to change.
    """
    levels = set(value.unique().tolist()) if value.is_floating_point() else set[float]()
    idle = ADDITIONS if levels == {0.0} else PRODUCTS if levels == {1.0} else frozenset[str]()
    numbers, users = set[int](), list[MarkedOp]()
    for entry in run.seen:
        read = {state.number for tensor, state in zip(entry.tensors, entry.inputs, strict=True) if tensor is value}
        if not read and not numbers & entry.taken:
            continue
        numbers |= read
        if entry.is_movement and not entry.operation.writes:
            numbers |= entry.results
        else:
            users.append(entry)
    return bool(users) and all(entry.last in idle or entry.name in idle for entry in users)
