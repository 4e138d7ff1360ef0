"""Sizes and inputs of foreign classes: what is no count, no chance or no sequence is refused in one sentence."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from headwise.errors import ArgumentError, ShapeError

__all__ = ["chance", "check_given", "check_sequence", "check_tensors", "count", "width_of"]


def count(name: str, size: Any) -> int:
    """A number of heads or features, 1 or more; a bool or a float is none."""
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise ArgumentError(f"{name} counts heads or features, so it must be 1 or more; got {name}={size!r}")
    return size


def chance(dropout: Any) -> float:
    """The chance of zeroing a weight, a number in 0..1."""
    if isinstance(dropout, bool) or not isinstance(dropout, int | float) or not 0.0 <= dropout <= 1.0:
        raise ArgumentError(f"dropout is the chance of zeroing a weight, so it must lie in 0..1; got {dropout!r}")
    return dropout


def check_tensors(**inputs: Any) -> None:
    """Raise ArgumentError unless all that was given, by its name, are tensors."""
    for name, x in inputs.items():
        if not isinstance(x, Tensor):
            raise ArgumentError(f"{name} must be a tensor, but {type(x).__name__} came: make one by torch.as_tensor")


def check_given(**inputs: Any) -> None:
    """The same for what may be None."""
    check_tensors(**{name: x for name, x in inputs.items() if x is not None})


def check_sequence(name: str, x: Any, width: int | None = None, *, letters: str = "B, L", called: str = "") -> None:
    """Raise unless x is a tensor (B, L, width).

    width: None: any. letters: what the message calls the other axes. called: and the width, "": nothing.

    >>> import torch
    >>> check_sequence("key", torch.zeros(2, 5, 7), 8, called="d_model")
    Traceback (most recent call last):
    ...
    headwise.errors.ShapeError: key must be (B, L, d_model=8), but came as (2, 5, 7)
    """
    check_tensors(**{name: x})
    if x.ndim != 3 or width not in (None, x.shape[-1]):
        last = "=".join(str(part) for part in (called or "width", width) if part is not None)
        raise ShapeError(f"{name} must be ({letters}, {last}), but came as {tuple(x.shape)}")


def width_of(linear: Any) -> int | None:
    """What a linear layer reads, None: it is not known yet, or the layer is something else."""
    # torch's lazy layers say 0 until their first call
    return getattr(linear, "in_features", None) or None
