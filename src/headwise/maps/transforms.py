"""Transforms: what readings do within torch.func, and which of them it cannot follow."""

from __future__ import annotations

import torch

from headwise.errors import ArgumentError


def in_torch_func() -> bool:
    """Whether a transform of torch.func (grad, vmap, jvp, ...) is at work."""
    return torch._C._functorch.peek_interpreter_stack() is not None


def refuse_in_torch_func(reading: str) -> None:
    """Raise ArgumentError, in one sentence, within a transform of torch.func."""
    if in_torch_func():
        raise ArgumentError(
            f"{reading} needs the numbers themselves, but torch.func (grad, vmap, jvp, ...) is at work, where tensors "
            "stand for others: call it outside"
        )
