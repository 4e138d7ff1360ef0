"""Batch copies: an input repeated along its batch axis, and the output of the copies taken apart again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module
from torch.utils import _pytree as pytree

from headwise.errors import ArgumentError

__all__ = ["CopyError", "batch_of", "check_equal", "check_model", "check_precision", "repeated", "split"]

PLAIN = (bool, int, float, complex, str, torch.dtype, torch.device, type(None))


class CopyError(ArgumentError):
    """Copies of the input cannot be told apart in one forward pass."""


def check_model(model: nn.Module) -> None:
    """CopyError where a model mixes the batch in training, or user hooks would meet several copies at once."""
    if torch_module._global_forward_hooks or torch_module._global_forward_pre_hooks:
        raise CopyError("forward hooks are registered for all modules, which would meet all copies at once")
    for name, module in model.named_modules():
        title = f'"{name}"' if name else "the model"
        if module.training:
            raise CopyError(f"{title} is in training mode, in which layers may mix the batch: call model.eval()")
        if module._forward_hooks or module._forward_pre_hooks:
            raise CopyError(f"{title} has forward hooks, which would meet all copies at once")


def check_precision(model: nn.Module, output: Any) -> None:
    """CopyError where a parameter or the output has fewer than 32 bits.

    Kernels of two batch sizes round a bfloat16 output apart by several times 0.8 %, float16 by 0.1 %; a tolerance of
    as much would let a model pass that mixes its batch by that.
    """
    params = [(f'"{name}"', param) for name, param in model.named_parameters()]
    outputs = [("the output", leaf) for leaf in pytree.tree_leaves(output) if isinstance(leaf, Tensor)]
    for title, tensor in (*outputs, *params):
        if tensor.is_floating_point() and tensor.dtype.itemsize < 4:
            raise CopyError(
                f"{title} is {tensor.dtype}, whose rounding hides a model that mixes its batch: call model.float()"
            )


def batch_of(inputs: Any) -> int:
    """The size of the batch, axis 0 of every tensor of the inputs (or 1 there); CopyError where they have none."""
    sizes = set()
    for leaf in pytree.tree_leaves(inputs):
        if type(leaf) in (Tensor, nn.Parameter) and leaf.layout is torch.strided and not leaf.is_nested:
            sizes |= {leaf.shape[0]} if leaf.ndim else set()
        elif not isinstance(leaf, PLAIN):
            raise CopyError(f"the inputs hold a {type(leaf).__name__}, which has no batch axis to repeat")
    batch = max(sizes, default=0)
    if batch == 0 or sizes - {1, batch}:
        raise CopyError(f"every tensor of the inputs must have the batch as axis 0, but those are {sorted(sizes)}")
    return batch


def repeated(inputs: Any, batch: int, copies: int) -> Any:
    """The inputs with every tensor of so large a batch repeated, the copies one after the other along axis 0."""

    def repeat(leaf: Any) -> Any:
        is_batched = isinstance(leaf, Tensor) and leaf.ndim and leaf.shape[0] == batch
        return torch.cat([leaf.detach()] * copies) if is_batched else leaf

    return pytree.tree_map(repeat, inputs)


class Unsplit:
    """In place of what an output holds and cannot be taken apart, as a cache: whatever reads it raises CopyError."""

    def __init__(self, kind: str) -> None:
        self.__dict__["kind"] = kind

    def _refuse(self, *_: object) -> NoReturn:
        raise CopyError(f"metric reads a {self.__dict__['kind']} of the output, which has no batch axis to split")

    # what Python looks up in the class is named here, all else goes through __getattr__
    __getattr__ = __getitem__ = __len__ = __iter__ = __call__ = _refuse


def split(output: Any, like: Any, copies: int) -> list[Any]:
    """The output of each copy, in the form of `like`, that of the input alone; CopyError where it has another form."""
    leaves, form = pytree.tree_flatten(output)
    wanted, wanted_form = pytree.tree_flatten(like)
    if form != wanted_form:
        raise CopyError("the output of several copies has another structure than that of one")
    if len(leaves) == 1 and leaves[0] is output and not isinstance(output, Tensor):
        raise CopyError(f"the output is a {type(output).__name__}, which has no batch axis to split")
    columns = [_split_leaf(leaf, alone, copies) for leaf, alone in zip(leaves, wanted, strict=True)]
    return [pytree.tree_unflatten(list(row), form) for row in zip(*columns, strict=True)] or [like] * copies


def _split_leaf(leaf: Any, like: Any, copies: int) -> list[Any]:
    if isinstance(leaf, Tensor) and isinstance(like, Tensor):
        shape = tuple(like.shape)
        if not shape or tuple(leaf.shape) != (copies * shape[0], *shape[1:]) or leaf.dtype != like.dtype:
            raise CopyError(
                f"the output holds a tensor {shape}, and {tuple(leaf.shape)} for {copies} copies, which has no batch "
                "as axis 0"
            )
        return list(leaf.split(shape[0])) if shape[0] else [leaf] * copies
    if isinstance(leaf, PLAIN):
        if leaf != like:
            raise CopyError(f"the output holds {like!r}, and {leaf!r} for {copies} copies")
        return [leaf] * copies
    return [Unsplit(type(leaf).__name__)] * copies


def check_equal(output: Any, like: Any, title: str) -> None:
    """CopyError where the output of a copy is not `like`, that of the same run without copies, within rounding.

    Rounding adds up over layers and differs between the kernels of two batch sizes: allowed are 4 eps^(3/4) of the
    largest number of each tensor, 3e-5 of it in float32 and 7e-12 in float64. Half precision is refused by
    `check_precision`. title: names the copy in the error.
    """
    for part, alone in _tensor_pairs(output, like):
        if not part.is_floating_point():
            if not part.equal(alone):
                raise CopyError(f"{title} gives other integers than without copies, so the model mixes its batch")
            continue
        a, b = part.double(), alone.double()
        # infinities and NaN in the same places are no difference
        differences = (a - b).abs()[~((a == b) | (a.isnan() & b.isnan()))]
        if not differences.numel():
            continue
        difference, largest = differences.max(), b.nan_to_num(0.0, 0.0, 0.0).abs().max()
        allowed = 4.0 * torch.finfo(part.dtype).eps ** 0.75 * largest
        if not bool(difference <= allowed):
            raise CopyError(
                f"{title} gives an output that differs by {float(difference):.3g} from that without copies (rounding "
                f"of {part.dtype}: {float(allowed):.3g}), so the model mixes its batch or computes in a coarser dtype"
            )


def _tensor_pairs(output: Any, like: Any) -> Iterator[tuple[Tensor, Tensor]]:
    for part, alone in zip(pytree.tree_leaves(output), pytree.tree_leaves(like), strict=True):
        if isinstance(part, Tensor):
            yield part, alone
