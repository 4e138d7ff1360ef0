"""Mode stack: torch's stack of function modes, from which one mode can step aside and back."""

from __future__ import annotations

import torch
from torch.overrides import TorchFunctionMode, _pop_mode, _push_mode

__all__ = ["depth_of", "insert", "remove"]


def depth_of(mode: TorchFunctionMode) -> int | None:
    """Where in the stack a mode is, counted from the bottom; None: it is not there."""
    size = torch._C._len_torch_function_stack()
    return next((n for n in range(size) if torch._C._get_function_stack_at(n) is mode), None)


def insert(mode: TorchFunctionMode, depth: int) -> None:
    """Put a mode into the stack, with `depth` modes below it, or on top where there are fewer."""
    above = [_pop_mode() for _ in range(max(0, torch._C._len_torch_function_stack() - depth))]
    for entry in (mode, *reversed(above)):
        _push_mode(entry)


def remove(mode: TorchFunctionMode) -> None:
    """Take a mode out of the stack, wherever in it it is; the others stay in their order."""
    depth = depth_of(mode)
    if depth is None:
        return
    above = [_pop_mode() for _ in range(torch._C._len_torch_function_stack() - depth)]
    for entry in reversed(above[:-1]):
        _push_mode(entry)
