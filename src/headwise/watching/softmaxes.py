"""Softmaxes: which of those that a model writes by hand may be attention: those whose result enters a matrix product.

A classifier's or a router's is chosen from, scaled by or compared, but multiplies no matrix.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["SOFTMAXES", "Softmaxes"]

aten = torch.ops.aten

SOFTMAXES: frozenset[Any] = frozenset(
    {
        F.softmax, torch.softmax, Tensor.softmax, torch.special.softmax, F.softmin, aten.softmax.int,
        aten._softmax.default, aten._safe_softmax.default, F.log_softmax, torch.log_softmax, Tensor.log_softmax,
        torch.special.log_softmax, aten.log_softmax.int, aten._log_softmax.default,
    }
)  # fmt: skip
PRODUCTS: frozenset[Any] = frozenset(
    {
        torch.matmul, Tensor.matmul, Tensor.__matmul__, Tensor.__rmatmul__, torch.mm, Tensor.mm, torch.bmm, Tensor.bmm,
        torch.mv, Tensor.mv, torch.einsum, torch.tensordot, torch.baddbmm, Tensor.baddbmm, torch.addmm, Tensor.addmm,
        torch.addbmm, Tensor.addbmm, aten.matmul.default, aten.mm.default, aten.bmm.default, aten.einsum.default,
    }
)  # fmt: skip
# what takes a part of the weights, such as one head or one block of rows
PARTS: frozenset[Any] = frozenset(
    {
        Tensor.__getitem__, torch.select, Tensor.select, torch.narrow, Tensor.narrow, torch.unbind, Tensor.unbind,
        torch.split, Tensor.split, torch.chunk, Tensor.chunk,
    }
)  # fmt: skip
# what puts weights beside others, or beside zeros, as of a band
WHOLES: frozenset[Any] = frozenset(
    {
        F.pad, torch._C._nn.pad, torch.cat, torch.stack, Tensor.expand, Tensor.repeat, torch.as_strided,
        Tensor.as_strided, Tensor.repeat_interleave, torch.repeat_interleave,
    }
)  # fmt: skip
# from a softmax to its product there lie a cast, dropout, axes moved, a band laid out, and the like
LONGEST_WAY = 16


class _Weights(NamedTuple):
    """What became of a softmax: the tensor, the name and shape that it had, and over how many functions it came."""

    tensor: weakref.ref[Tensor]
    name: str
    shape: tuple[int, ...]
    way: int


class Softmaxes:
    """The softmaxes of a watched block, and what becomes of their results."""

    def __init__(self) -> None:
        # name of the module -> the shape of the first softmax of its own that enters a product
        self.weighing: dict[str, tuple[int, ...]] = {}
        self._weights: dict[int, _Weights] = {}

    def begin(self, name: str, result: Any) -> None:
        """A softmax has run."""
        if isinstance(result, Tensor) and name not in self.weighing:
            self._follow(result, name, tuple(result.shape), 0)

    def go_on(self, function: Callable[..., Any], args: Sequence[Any], options: Mapping[str, Any], result: Any) -> None:
        """Another function has run."""
        if not self._weights:
            return
        for given in _tensors((*args, *options.values())):
            weights = self._weights.get(id(given))
            if weights is None or weights.tensor() is not given:
                continue
            if function in PRODUCTS:
                self.weighing.setdefault(weights.name, weights.shape)
                return
            for made in _tensors(result if isinstance(result, tuple | list) else (result,)):
                if weights.way < LONGEST_WAY and _is_still(given, made, function):
                    self._follow(made, weights.name, weights.shape, weights.way + 1)

    def _follow(self, tensor: Tensor, name: str, shape: tuple[int, ...], way: int) -> None:
        number = id(tensor)
        known = self._weights.get(number)
        if known is not None and known.tensor() is tensor:
            return
        ref = weakref.ref(tensor, lambda _: self._weights.pop(number, None))
        self._weights[number] = _Weights(ref, name, shape, way)


def _is_still(weights: Tensor, made: Tensor, function: Callable[..., Any]) -> bool:
    """Whether a function of the weights gave weights again: not a sum of them, and nothing that they scale."""
    if not made.is_floating_point() or made.is_nested or weights.is_nested:
        return False
    size, before = made.numel(), weights.numel()
    return size > 0 and (size <= before or function in WHOLES) and (2 * size > before or function in PARTS)


def _tensors(values: Sequence[Any]) -> Iterator[Tensor]:
    """The tensors among some values, and in the lists among them."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, tuple | list):
            yield from (each for each in value if isinstance(each, Tensor))
