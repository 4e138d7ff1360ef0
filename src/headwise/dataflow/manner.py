"""Manner: the options of a run, and what is done to a target before the call that is recorded."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from headwise.calls import Plan
from headwise.dataflow.float64 import as_it_is, move_weights
from headwise.recording import begin_anew, seeded, tensors

__all__ = ["Manner", "arguments", "built", "call_before", "default_dtype", "first_of"]


@dataclass(frozen=True)
class Manner:
    """The options of a run. seed: of the inputs; luck: of random numbers in the run, None: as the inputs. earlier: the
    seed of the inputs of a call before, None: it is the first; before: its sizes, (): the same. forgets: the state that
    it left is restored. moved: how far a training after it moves the weights, None: there is none.
    instance: the seed of random numbers while the target is built.
    """

    dtype: torch.dtype = torch.float64
    seed: int = 0
    luck: int | None = None
    earlier: int | None = None
    before: tuple[tuple[str, int], ...] = ()
    forgets: bool = False
    moved: float | None = None
    instance: int = 0
    gradients: bool = False
    training: bool = False


@contextlib.contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """A block in which new tensors have this dtype."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def built(plan: Plan, sizes: Mapping[str, int], seed: int) -> Any:
    """The target in train mode, whose switch reads weights that are still to be changed, or where it cannot be, in eval
    mode.
    """
    try:
        return plan.build(sizes, seed=seed, training=True)
    except Exception:  # noqa: BLE001  user code may raise anything
        return plan.build(sizes, seed=seed)


def call_before(plan: Plan, target: Any, sizes: Mapping[str, int], manner: Manner) -> None:
    """Run the calls before the recorded one."""
    if isinstance(target, nn.Module) and any(isinstance(p, nn.UninitializedParameter) for p in target.parameters()):
        # lazy weights must be equal in every run
        begin_anew(0)
        _called(plan, target, sizes, 0, manner.dtype)
    if manner.earlier is not None:
        forget = as_it_is(target) if manner.forgets and isinstance(target, nn.Module) else None
        _called(plan, target, dict(manner.before) or sizes, manner.earlier, manner.dtype)
        if forget is not None:
            forget()
    if manner.moved is not None and isinstance(target, nn.Module):
        _trained(plan, target, sizes, manner.moved, manner.dtype)


def _trained(plan: Plan, target: nn.Module, sizes: Mapping[str, int], std: float, dtype: torch.dtype) -> None:
    """Train a target by one call, whose gradients tell which weights it moves, and switch it back to eval mode."""
    args, options = arguments(plan, sizes, 0, dtype)
    with contextlib.suppress(Exception), torch.enable_grad():
        target.train()
        next(tensors(first_of(target(*args, **options)))).sum().backward()
        move_weights(target, std, is_learned=lambda param: param.grad is not None)
        target.zero_grad(set_to_none=True)
        target.eval()


def _called(plan: Plan, target: Any, sizes: Mapping[str, int], seed: int, dtype: torch.dtype) -> None:
    """Call a target once and ignore errors."""
    args, options = arguments(plan, sizes, seed, dtype)
    with torch.no_grad(), contextlib.suppress(Exception):
        target(*args, **options)


def arguments(
    plan: Plan, sizes: Mapping[str, int], seed: int, dtype: torch.dtype
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a plan, in a dtype."""
    # an expression of user code may draw random numbers too
    with seeded(seed):
        args, options = plan.arguments(sizes, seed=seed)
    return tuple(_in(argument, dtype) for argument in args), {name: _in(each, dtype) for name, each in options.items()}


def first_of(result: Any) -> Any:
    """The result of a call, or of an output object the last hidden state, the logits, or else all that it holds."""
    if isinstance(result, Tensor | tuple | list | Mapping):
        return result
    values = (getattr(result, name, None) for name in ("last_hidden_state", "logits"))
    return next((value for value in values if isinstance(value, Tensor)), result)


def _in(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, Tensor):
        return value.to(dtype) if value.is_floating_point() else value
    if isinstance(value, tuple):
        return tuple(_in(each, dtype) for each in value)
    return value
