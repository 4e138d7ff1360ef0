"""Fused steps: a call of torch that does several things at once, as the functions that do one each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

__all__ = ["steps_of"]

# runs a function on arguments
Step = Callable[..., Any]


def _added_product(run: Step, *args: Tensor, beta: float = 1, alpha: float = 1, **named: Tensor) -> Any:
    tensors = dict(zip(("input", "batch1", "batch2"), args, strict=False)) | named
    product = run(torch.bmm, tensors["batch1"], tensors["batch2"])
    if alpha != 1:
        product = run(torch.mul, product, alpha)
    if beta == 0:
        return product
    added = tensors["input"] if beta == 1 else run(torch.mul, tensors["input"], beta)
    return run(torch.add, product, added)


STEPS: dict[Any, Callable[..., Any]] = {torch.baddbmm: _added_product, Tensor.baddbmm: _added_product}


def steps_of(function: Any, options: dict[str, Any]) -> Callable[..., Any] | None:
    """What takes `run(function, *arguments)` for one step, and then the arguments of a call of `function`, and does it
    step by step; None: it is one step, or writes into a tensor that it is given.
    """
    return None if "out" in options else STEPS.get(function)
