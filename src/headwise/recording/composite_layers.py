"""Composite layers: torch's attention layers as one step each, off the recorder, so that they keep their fast path."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from headwise.watching import mode_stack as stack

__all__ = ["ATTENTION", "LAYERS", "composites"]

ATTENTION = (nn.MultiheadAttention,)
# a function mode on the stack turns their fast path off, and with it the last bits of their output
LAYERS = (*ATTENTION, nn.TransformerEncoderLayer, nn.TransformerEncoder)

Step = Callable[[str, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]


@contextmanager
def composites(mode: TorchFunctionMode, step: Step, layers: Sequence[type[nn.Module]]) -> Iterator[None]:
    """A block in which each call of one of `layers` goes through `step`, with `mode` off the stack."""
    originals = [(layer, layer.forward) for layer in layers]
    for layer, original in originals:
        setattr(layer, "forward", _one_step(layer.__name__, original, mode, step))  # noqa: B010  mypy refuses the other
    try:
        yield
    finally:
        for layer, original in originals:
            setattr(layer, "forward", original)  # noqa: B010


def _one_step(name: str, original: Callable[..., Any], mode: TorchFunctionMode, step: Step) -> Callable[..., Any]:
    @functools.wraps(original)
    def forward(*args: Any, **options: Any) -> Any:
        depth = stack.depth_of(mode)
        if depth is None or torch.compiler.is_compiling():
            return original(*args, **options)
        stack.remove(mode)
        try:
            return step(name, original, args, options)
        finally:
            stack.insert(mode, depth)

    return forward
