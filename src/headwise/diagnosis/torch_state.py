"""Torch state: torch as a diagnosis needs it, whatever its caller has set: with gradients, on the CPU, not cast."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

__all__ = ["plain_torch"]


@contextlib.contextmanager
def plain_torch() -> Iterator[None]:
    """A block in which gradients are recorded, new tensors are on the CPU, and nothing is cast to half precision."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        if torch.is_autocast_enabled("cpu"):
            stack.enter_context(torch.autocast("cpu", enabled=False))
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        yield
