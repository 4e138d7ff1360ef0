"""Keras' arrays of weights and torch's, read both ways, all or none of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from headwise.errors import ConversionError

__all__ = ["Projection", "all_or_none"]


class Projection(NamedTuple):
    """An EinsumDense of Keras: a kernel of inputs and outputs, such as (E, H, D), and a bias of outputs."""

    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    def to_keras(self, linear: nn.Module) -> list[Any]:
        """The kernel, and the bias where there is one, as arrays in Keras' shapes.

        >>> [array.shape for array in Projection("query", (5,), (2, 3)).to_keras(nn.Linear(5, 6))]
        [(5, 2, 3), (2, 3)]
        """
        parts = {name: weight.detach().cpu() for name, weight in linear.named_parameters()}
        kernel = parts["weight"].T.reshape(*self.inputs, *self.outputs).contiguous()
        bias = [parts["bias"].reshape(self.outputs).clone().numpy()] if "bias" in parts else []
        return [kernel.numpy(), *bias]


def all_or_none(projections: Sequence[Projection], arrays: Sequence[Any], *, has_bias: bool) -> dict[str, Tensor]:
    """Keras' arrays, kernel and bias of one projection after the other, as a state_dict of Linears of these names."""
    wanted: list[tuple[str, tuple[int, ...]]] = []
    for each in projections:
        wanted.append((f"{each.name} kernel", (*each.inputs, *each.outputs)))
        wanted += [(f"{each.name} bias", each.outputs)] if has_bias else []
    given = [tuple(int(size) for size in array.shape) for array in arrays]
    if given != [shape for _, shape in wanted]:
        listed = ", ".join(f"{name} {shape}" for name, shape in wanted)
        raise ConversionError(
            f"the weights must be {len(wanted)} arrays in the order of Keras, {listed}, but {len(given)} came: "
            f"{', '.join(map(str, given)) or 'none'}"
        )
    tensors, rest = {}, iter(arrays)
    for each in projections:
        kernel = torch.as_tensor(next(rest))
        tensors[f"{each.name}.weight"] = kernel.reshape(math.prod(each.inputs), math.prod(each.outputs)).T
        if has_bias:
            tensors[f"{each.name}.bias"] = torch.as_tensor(next(rest)).flatten()
    return tensors
