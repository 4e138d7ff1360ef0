"""Torch limits: while something is only tried, torch is not led to read what is not there, nor to fill the memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from headwise.recording.budget import Counting
from headwise.shapes import broadcast_shape

__all__ = ["Guarded", "check_lengths"]

# numbers in a tensor that is made while something is tried
LARGEST = 100_000_000
# what makes a tensor out of nothing
MAKERS = frozenset({"zeros", "ones", "empty", "rand", "randn", "full"})


class Guarded(Counting):
    """A block in which torch's attention, which does not look itself, is given as many values as keys, and nothing is
    made that is larger than what is only tried may be, and which ends; its work is counted.
    """

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        options = kwargs or {}
        if func is torch.nn.functional.scaled_dot_product_attention:
            check_lengths(*args, **options)
        name = getattr(func, "__name__", "")
        count = _filled(args, options) if name in MAKERS else _met(name, args)
        if count > LARGEST:
            raise MemoryError(f"{name} was to make {count} numbers")
        return self.counted(func, args, options)


def check_lengths(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> None:
    """Raise where there are not as many values as keys: torch's fused kernel would read what is not there."""
    del query
    if key.shape[-2] != value.shape[-2]:
        raise RuntimeError(f"there must be as many values as keys, but there are {value.shape[-2]} and {key.shape[-2]}")


def _filled(args: Sequence[Any], options: Mapping[str, Any]) -> int:
    """How many numbers a tensor of a shape has."""
    shape = options.get("size", args[0] if args and isinstance(args[0], tuple | list) else args)
    return prod(each for each in shape if isinstance(each, int)) if isinstance(shape, tuple | list) else 0


def _met(name: str, args: Sequence[Any]) -> int:
    """How many numbers come of tensors that are laid over one another; 0: no more than were there."""
    among = args[0] if args and isinstance(args[0], tuple | list) else args
    met = [each for each in among if isinstance(each, Tensor) and not is_lazy(each)]
    most = prod(each.numel() for each in met) if len(met) > 1 else 0
    if name == "meshgrid" or most <= LARGEST:
        return most if name == "meshgrid" else 0
    return prod(broadcast_shape(*(each.shape for each in met)) or (0,))
