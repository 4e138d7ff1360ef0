"""Second generation: whether a method that generates gives the same again for the same prompt."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from headwise.calls import parameters
from headwise.dataflow import Run, default_dtype, readied
from headwise.diagnosis.checks.parted_runs import parting
from headwise.diagnosis.distance import distance
from headwise.diagnosis.modules import draws_its_own
from headwise.diagnosis.suspects import Suspect
from headwise.recording import Record, record, seeded
from headwise.source import is_installed

__all__ = ["COUNT", "arguments_of", "fresh", "generation_suspects", "is_published", "method_of", "recorded"]

METHODS = ("generate", "sample", "decode", "predict", "greedy_decode", "translate", "complete", "reply", "respond")
# what a method that generates calls the number of tokens, and how many it is asked for
COUNTS = frozenset({
    "max_new_tokens", "max_new", "new_tokens", "num_tokens", "n_tokens", "n_new", "n_new_tokens", "num_new_tokens",
    "steps", "n_steps", "num_steps", "n", "horizon", "length",
})  # fmt: skip
COUNT = 3
CHOICES = frozenset({"multinomial", "argmax", "topk"})
# what makes a class forget by a call of its own: then the caller is to make it
FORGETTING = ("reset", "clear", "empty", "start", "begin", "new", "open", "init", "forget", "restore", "set_", "detach")
NEAR = 1e-9


def generation_suspects(run: Run) -> list[Suspect]:
    """Where a second call of a method that generates parts from the first, on the same prompt and random numbers.

    The same method of another copy of the module gives what the first call gave, so that what is kept is to blame.
    """
    kind = type(run.target)
    if not isinstance(run.target, nn.Module) or not isinstance(run.plan.target, type) or is_published(kind):
        return []
    inner = {type(module) for module in run.target.modules() if not is_published(type(module))}
    if any(name.startswith(FORGETTING) for each in inner for name in _names(each)) or draws_its_own(run.target):
        return []
    name = method_of(kind)
    arguments = arguments_of(run, name) if name else None
    if arguments is None:
        return []
    model, other = fresh(run), fresh(run)
    first = recorded(model, name, arguments, run)
    if first.failure is not None or not _is_same(first, recorded(other, name, arguments, run)):
        return []
    states = (model.state_dict().values(), fresh(run).state_dict().values())
    if any(not torch.equal(a, b) for a, b in zip(*states, strict=True)):
        # what is registered is kept on purpose
        return []
    second = recorded(model, name, arguments, run)
    if second.failure is None and _is_same(first, second):
        return []
    place = second.failure.span if second.failure is not None else parting(first.operations, second.operations)
    return [Suspect("stateful-forward", place, values={"how": "forgotten"}, proved=True)]


def _names(kind: type) -> list[str]:
    """The names of the person's own in a class."""
    return [name.lstrip("_") for base in kind.__mro__ if base not in nn.Module.__mro__ for name in vars(base)
            if not (name.startswith("__") and name.endswith("__"))]  # fmt: skip


def method_of(kind: type) -> str:
    """The name of the method of a class that generates; "": there is none."""
    names = _names(kind)
    return next((method for method in METHODS if method in names and callable(getattr(kind, method, None))), "")


def is_published(kind: type) -> bool:
    return is_installed(getattr(inspect.getmodule(kind), "__file__", None) or "")


def arguments_of(run: Run, name: str) -> dict[str, Any] | None:
    """The arguments of a method: the inputs of the call by their names, the first one by its place; None: not known."""
    tensors = {argument: tensor for argument, tensor in run.given.items() if argument != run.plan.mask}
    handed: dict[str, Any] = {}
    for at, param in enumerate(parameters(getattr(run.target, name))):
        if param.name in tensors:
            handed[param.name] = tensors[param.name]
        elif at == 0 and tensors:
            handed[param.name] = next(iter(tensors.values()))
        elif param.name in COUNTS:
            handed[param.name] = COUNT
        elif param.default is param.empty:
            return None
    return handed if any(isinstance(value, Tensor) for value in handed.values()) else None


def fresh(run: Run) -> nn.Module:
    """The module as it was built, with nothing kept of a call."""
    with default_dtype(torch.float64):
        return readied(run.plan.build(run.sizes), torch.float64, training=False)


def recorded(model: nn.Module, name: str, arguments: dict[str, Any], run: Run) -> Record:
    """A call of a method, with a copy of its arguments and the same random numbers."""
    copies = {key: value.clone() if isinstance(value, Tensor) else value for key, value in arguments.items()}
    files = {span.file for span in run.spans}
    with torch.no_grad(), seeded(0), default_dtype(torch.float64):
        return record(lambda: getattr(model, name)(**copies), model=model, user_files=files, values=True)


def _is_same(first: Record, second: Record) -> bool:
    """Whether two calls chose tokens by the same numbers, and gave the same: other numbers may give the same tokens."""
    chosen = [[*_chosen_by(call), call.result] for call in (first, second)]
    if second.failure is not None or len(chosen[0]) != len(chosen[1]):
        return False
    pairs = [(a, b) for a, b in zip(*chosen, strict=True) if isinstance(a, Tensor) and isinstance(b, Tensor)]
    return all(a.shape == b.shape and distance(a.double(), b.double()) <= NEAR for a, b in pairs)


def _chosen_by(recording: Record) -> Iterator[Tensor | None]:
    """The numbers by which tokens were chosen."""
    yield from (op.inputs[0].value for op in recording.operations if op.last in CHOICES and op.inputs)
