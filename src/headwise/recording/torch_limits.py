"""Torch limits: in a trial call torch may neither read out of bounds nor fill the memory."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from headwise.recording.budget import Counting
from headwise.shapes import broadcast_shape

__all__ = ["Guarded", "check_lengths", "is_out_of_memory"]

# the most numbers of a tensor in a trial call
LARGEST = 100_000_000
# what is said where memory is at an end
MEMORY = re.compile(
    r"MemoryError|can't allocate memory|not enough memory|out of memory|Storage size calculation overflowed"
)
# functions that make a tensor of a size
MAKERS = frozenset({"zeros", "ones", "empty", "rand", "randn", "full"})


class Guarded(Counting):
    """A mode that raises where torch's attention gets more keys than values or fewer, where a tensor is larger than
    LARGEST, and after OPERATIONS operations; it counts work.
    """

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        options = kwargs or {}
        if func is torch.nn.functional.scaled_dot_product_attention:
            check_lengths(*args, **options)
        name = getattr(func, "__name__", "")
        count = _size_count(args, options) if name in MAKERS else _broadcast_count(name, args)
        if count > LARGEST:
            raise MemoryError(f"{name} was to make {count} numbers")
        return self.run_counted(func, args, options)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory is at an end, which is ours to give, and tells nothing of the code that ran."""
    return MEMORY.search(f"{type(error).__name__}: {error}") is not None


def check_lengths(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> None:
    """Raise where the numbers of keys and values differ: torch's fused kernel would read out of bounds."""
    del query
    if key.shape[-2] != value.shape[-2]:
        raise RuntimeError(f"there must be as many values as keys, but there are {value.shape[-2]} and {key.shape[-2]}")


def _size_count(args: Sequence[Any], options: Mapping[str, Any]) -> int:
    """The count of numbers of a tensor that is made of a size."""
    shape = options.get("size", args[0] if args and isinstance(args[0], tuple | list) else args)
    return prod(size for size in shape if isinstance(size, int)) if isinstance(shape, tuple | list) else 0


def _broadcast_count(name: str, args: Sequence[Any]) -> int:
    """The count of numbers after broadcasting the tensors of a call; 0: it is below LARGEST."""
    arguments = args[0] if args and isinstance(args[0], tuple | list) else args
    operands = [argument for argument in arguments if isinstance(argument, Tensor) and not is_lazy(argument)]
    most = prod(operand.numel() for operand in operands) if len(operands) > 1 else 0
    if name == "meshgrid" or most <= LARGEST:
        return most if name == "meshgrid" else 0
    return prod(broadcast_shape(*(operand.shape for operand in operands)) or (0,))
