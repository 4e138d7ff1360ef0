"""Module copies: a copy of a module in memory as the doctor runs it: on the CPU, in float32 at least."""

from __future__ import annotations

import copy

import torch
from torch import nn

from headwise.recording import tensors

__all__ = ["apart", "holds_numbers"]

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
