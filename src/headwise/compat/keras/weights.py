"""Keras' arrays of weights and torch's, read both ways, all or none of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from headwise.errors import ConversionError

__all__ = ["Projection", "all_or_none", "as_array", "as_weight", "shapes_of"]


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
        bias = [as_array(parts["bias"].reshape(self.outputs).clone())] if "bias" in parts else []
        return [as_array(kernel), *bias]


def all_or_none(projections: Sequence[Projection], arrays: Sequence[Any], *, has_bias: bool) -> dict[str, Tensor]:
    """Keras' arrays, kernel and bias of one projection after the other, as a state_dict of Linears of these names."""
    wanted: list[tuple[str, tuple[int, ...]]] = []
    for projection in projections:
        wanted.append((f"{projection.name} kernel", (*projection.inputs, *projection.outputs)))
        wanted += [(f"{projection.name} bias", projection.outputs)] if has_bias else []
    came = shapes_of(arrays)
    if came != [shape for _, shape in wanted]:
        listed = ", ".join(f"{name} {shape}" for name, shape in wanted)
        raise ConversionError(
            f"the weights must be {len(wanted)} arrays in the order of Keras, {listed}, but {len(came)} came: "
            f"{', '.join(map(str, came)) or 'none'}"
        )
    tensors, rest = {}, iter(arrays)
    for projection in projections:
        kernel = as_weight(next(rest))
        rows, columns = math.prod(projection.inputs), math.prod(projection.outputs)
        tensors[f"{projection.name}.weight"] = kernel.reshape(rows, columns).T
        if has_bias:
            tensors[f"{projection.name}.bias"] = as_weight(next(rest)).flatten()
    return tensors


def shapes_of(arrays: Sequence[Any]) -> list[tuple[int, ...]]:
    """The shapes of arrays; ConversionError where they are none."""
    if not isinstance(arrays, list | tuple) or not all(hasattr(array, "shape") for array in arrays):
        listed = arrays if isinstance(arrays, list | tuple) else (arrays,)
        kinds = ", ".join(sorted({type(array).__name__ for array in listed}))
        raise ConversionError(
            f"the weights must be a list of arrays, as Keras' layer.get_weights() gives it, but {kinds} came"
        )
    return [tuple(int(size) for size in array.shape) for array in arrays]


def as_weight(array: Any) -> Tensor:
    """An array of Keras as a tensor of its dtype; torch reads no bfloat16 of numpy."""
    if getattr(array.dtype, "name", "") == "bfloat16":
        return torch.as_tensor(array.astype("float32")).bfloat16()
    return torch.as_tensor(array)


def as_array(weight: Tensor) -> Any:
    """A tensor as an array; one of bfloat16 as float32, which Keras rounds back."""
    return (weight.float() if weight.dtype is torch.bfloat16 else weight).numpy()
