"""Copies: a module that is at hand as the doctor runs it: on the CPU, in float32 at least, and not its owner's own."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from headwise.recording.identity import tensors

__all__ = ["apart", "as_it_is", "holds_numbers"]

SHORT = (torch.float16, torch.bfloat16)


def holds_numbers(target: nn.Module) -> bool:
    """Whether a module holds numbers; on the meta device it does not."""
    return not any(each.is_meta for each in (*target.parameters(), *target.buffers()))


def apart(target: nn.Module) -> nn.Module:
    """A copy of a module on the CPU, what is in half precision in float32. What it keeps of its last call is detached,
    as torch copies no tensor that has a graph.
    """
    kept = (each for module in target.modules() for each in tensors(list(vars(module).values())))
    memo = {id(each): each.detach().clone() for each in kept if each.grad_fn is not None}
    own = copy.deepcopy(target, memo).cpu()
    return own.float() if any(each.dtype in SHORT for each in (*own.parameters(), *own.buffers())) else own


def as_it_is(target: nn.Module) -> Callable[[], None]:
    """A function that puts back all that a module keeps beside its parameters and its parts, as it is now."""
    kept = {module: {name: _like(each) for name, each in _own(module).items()} for module in target.modules()}

    def back() -> None:
        for module, held in kept.items():
            for name in _own(module).keys() - held.keys():
                (module.__dict__ if name in module.__dict__ else module._buffers).pop(name)
            for name, each in held.items():
                (module._buffers if name in module._buffers else module.__dict__)[name] = each

    return back


def _own(module: nn.Module) -> dict[str, Any]:
    """What a module keeps itself: its attributes and its buffers."""
    return {**{name: each for name, each in vars(module).items() if not name.startswith("_")}, **module._buffers}


def _like(value: Any) -> Any:
    """A value that stays what it is when another is written to."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    return copy.copy(value) if isinstance(value, list | dict | set) else value
