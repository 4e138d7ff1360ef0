"""Modules: the modules and parameters of a target by their names, and its copy as the doctor runs it."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

from headwise.recording import tensors

__all__ = ["apart", "draws_its_own", "holds_numbers", "module_at", "modules_in", "parameter_at"]

# lists in lists in lists
DEEPEST = 3
SHORT = (torch.float16, torch.bfloat16)


def module_at(target: nn.Module, path: str) -> nn.Module:
    """The module of a name. `get_submodule` takes an attribute of that name, which may be a method."""
    module: nn.Module = dict(target.named_modules(remove_duplicate=False))[path]
    return module


def parameter_at(target: nn.Module, name: str) -> nn.Parameter:
    """The parameter of a name."""
    return dict(target.named_parameters(remove_duplicate=False))[name]


def modules_in(value: Any, depth: int = 0) -> Iterator[nn.Module]:
    """The modules in what an attribute holds: itself, or what a list or a dictionary holds."""
    if isinstance(value, nn.Module):
        yield value
    elif depth < DEEPEST and isinstance(value, list | tuple | set | Mapping):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from modules_in(item, depth + 1)


def holds_numbers(target: nn.Module) -> bool:
    """Whether a module holds numbers; on the meta device it does not."""
    return not any(tensor.is_meta for tensor in (*target.parameters(), *target.buffers()))


def apart(target: nn.Module) -> nn.Module:
    """A copy of a module on the CPU, what is in half precision in float32. What it keeps of its last call is detached,
    as torch copies no tensor that has a graph.
    """
    kept = (tensor for module in target.modules() for tensor in tensors(list(vars(module).values())))
    memo = {id(tensor): tensor.detach().clone() for tensor in kept if tensor.grad_fn is not None}
    copied = copy.deepcopy(target, memo).cpu()
    return (
        copied.float() if any(tensor.dtype in SHORT for tensor in (*copied.parameters(), *copied.buffers())) else copied
    )


def draws_its_own(model: nn.Module) -> bool:
    """Whether a module has random numbers of its own, which go on from call to call."""
    return any(isinstance(value, torch.Generator) for module in model.modules() for value in vars(module).values())
