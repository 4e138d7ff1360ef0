"""Mode switches: whether eval() called again leaves what a module computes as it was."""

from __future__ import annotations

import inspect
import random
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from headwise.dataflow import Run, move_weights
from headwise.diagnosis.distance import distance
from headwise.diagnosis.modules import draws_its_own
from headwise.diagnosis.suspects import Suspect
from headwise.recording import record, seeded, tensors
from headwise.source import Span, is_installed

__all__ = ["MOVED", "changes_by_itself", "switched_modes", "switches_of"]

NEAR = 1e-6
# how far the trained weights are moved, as by training
MOVED = 0.1
# modes that follow each other, of which the last is that of the first alone; True: of training
AGAIN = ((False, False), (False, True, False))
# averages of weights may take in those of the moment at each switch
AVERAGES = re.compile(r"(?:^|_)(?:ema|swa)(?:_|$)|averag|shadow", re.IGNORECASE)


def switched_modes(run: Run, rerun: Callable[..., Run]) -> list[Suspect]:
    """What a switch of its own between training and evaluation adds to the weights each time it is called.

    Proved by runs of other weights than the initial ones, as training leaves them: after eval() twice, or after eval(),
    train() and eval(), a weight and the output are others than after eval() alone. A switch that draws random numbers,
    or that keeps an average of the weights, is left.
    """
    if not isinstance(run.target, nn.Module) or not isinstance(run.plan.target, type):
        return []
    switches = switches_of(run.target)
    place = next(iter(switches), None)
    if place is None or changes_by_itself(run.target):
        return []
    files = {span.file for span in switches}
    first, kept = _after(rerun, (False,))
    if first.failure is not None or first.output is None or not bool(first.output.isfinite().all()):
        return []
    for modes in AGAIN:
        again, weights = _after(rerun, modes)
        if again.failure is not None or again.output is None or again.output.shape != first.output.shape:
            continue
        error = distance(first.output, again.output)
        if weights.keys() != kept.keys() or error <= NEAR:
            continue
        if any(weights[name].shape == kept[name].shape and _weights_differ(weights[name], kept[name]) for name in kept):
            written = _place_of_write(again.target, files)
            said = {"how": "switched"}
            return [
                Suspect("mode-changes-weights", written or place, values=said, proved=True, evidence=f"{error:.4g}")
            ]
    return []


def switches_of(target: nn.Module) -> list[Span]:
    """Where the classes of the modules of a target switch between training and evaluation themselves."""
    return [span for module in target.modules() if (span := _switch(type(module))) is not None]


def changes_by_itself(target: nn.Module) -> bool:
    """Whether calls of a target differ on purpose: it draws random numbers, or keeps an average of its weights."""
    return draws_its_own(target) or any(AVERAGES.search(name) for name in _names(target))


def _switch(kind: type[nn.Module]) -> Span | None:
    """The method of a class in user code that switches between training and evaluation; None: torch's own do."""
    for name in ("train", "eval"):
        code = getattr(inspect.unwrap(getattr(kind, name)), "__code__", None)
        is_torch = getattr(kind, name) is getattr(nn.Module, name)
        if code is not None and not is_torch and not is_installed(code.co_filename):
            return Span(code.co_filename, code.co_qualname, code.co_firstlineno)
    return None


def _names(model: nn.Module) -> Iterator[str]:
    """The names of what a module and those inside it hold."""
    for module in model.modules():
        yield from (*vars(module), *module._buffers, *module._parameters, *module._modules)


def _after(rerun: Callable[..., Run], modes: Sequence[bool]) -> tuple[Run, dict[str, Tensor]]:
    """A run of a module with moved weights after switches of its mode, and its weights then; none: the switches raise,
    as those that cannot be taken back, or draw random numbers.
    """
    weights: dict[str, Tensor] = {}

    def change(target: Any, _: dict[str, Any]) -> None:
        with torch.no_grad(), seeded(0):
            try:
                target.train()
                move_weights(target, MOVED)
                before = _next_random_numbers()
                for mode in modes:
                    target.train() if mode else target.eval()
            except Exception:  # noqa: BLE001  user code may raise anything
                return
            if _next_random_numbers() == before:
                # a buffer may be a schedule, as of a temperature
                weights.update({name: param.detach().clone() for name, param in target.named_parameters()})

    return rerun(more_change=change), weights


def _next_random_numbers() -> list[float]:
    """The next random numbers of torch, of Python and of NumPy, which stay the next."""
    with seeded():
        numpy = sys.modules.get("numpy")
        return [float(torch.rand(())), random.random(), 0.0 if numpy is None else float(numpy.random.random())]


def _weights_differ(a: Tensor, b: Tensor) -> bool:
    """Whether two weights differ."""
    return a.is_floating_point() and distance(a, b) > NEAR


def _place_of_write(target: nn.Module, files: set[str]) -> Span | None:
    """Where one more eval() writes into a weight, or one after train(); None: not known."""
    storages = {tensor.untyped_storage().data_ptr() for tensor in (*target.parameters(), *target.buffers())}
    places: list[Span] = []

    def observe(_: int, operation: Any, __: Any, args: Any, ___: Any) -> None:
        operands = [tensor for tensor in tensors(args) if tensor.layout is torch.strided]
        if operation.writes and any(tensor.untyped_storage().data_ptr() in storages for tensor in operands[:1]):
            places.append(operation.span)

    def eval_after_train() -> None:
        target.train()
        target.eval()

    for switch in (target.eval, eval_after_train):
        record(switch, model=target, user_files=files, observe=observe)
        if places:
            break
    return places[-1] if places else None
