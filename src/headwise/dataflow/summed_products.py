"""Summed products: a product of entries and the sum of them as one contraction, as in `(q * k).sum(-1)`."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from headwise.dataflow.contractions import Einsum
from headwise.dataflow.marked_operations import MarkedOp
from headwise.dataflow.provenance import Marks
from headwise.recording import TensorSeen

__all__ = ["MULTIPLICATIONS", "product_of", "summed_product"]

MULTIPLICATIONS = frozenset({"mul", "__mul__", "__rmul__", "multiply"})
DIVISIONS = frozenset({"div", "__truediv__", "true_divide", "divide"})


@dataclass(frozen=True)
class _Factor:
    """A tensor that is multiplied, without the axes along which it is only repeated. letters: of its axes."""

    recorded: TensorSeen
    tensor: Tensor
    marks: Marks
    letters: str


def product_of(entry: MarkedOp, products: Mapping[int, MarkedOp]) -> MarkedOp | None:
    """The product that an operation computes: of its two operands, or one before it that it scales by one number.

    products: those so far, by the number of their tensor.
    """
    is_product = entry.last in MULTIPLICATIONS
    # what a product divides is none
    if is_product or (entry.last in DIVISIONS and entry.inputs[0].number in products):
        numbers = [operand.number for operand in entry.inputs if operand.number in products]
        others = [
            tensor for tensor, operand in zip(entry.tensors, entry.inputs, strict=True) if operand.number not in numbers
        ]
        if len(numbers) == 1 and all(other.numel() == 1 for other in others):
            return products[numbers[0]]
    return entry if is_product else None


def summed_product(product: MarkedOp, total: MarkedOp) -> MarkedOp | None:
    """A sum of the entries of a product as one operation on what is multiplied; None: it is none of attention.

    That is a product of features of queries and keys, or of weights and values over keys.
    """
    factors, axes = product.tensors, _axes(total)
    if len(factors) != 2 or axes is None or len(total.outputs) != 1:
        return None
    rank = max(factor.ndim for factor in factors)
    if len(total.outputs[0].shape) != rank - len(axes):
        return None
    letters = string.ascii_letters[:rank]
    summed = {letters[axis % rank] for axis in axes}
    sides = [_factor(product, at, letters, factors[1 - at].shape) for at in range(len(factors))]
    a, b = sides
    if a is None or b is None or not summed <= {*a.letters} & {*b.letters} or not _is_of_attention((a, b), summed):
        return None
    joint = Einsum(a.tensor, b.tensor, a.letters, b.letters, "".join(each for each in letters if each not in summed))
    if not joint.is_possible:
        return None
    return replace(
        total, operation=replace(total.operation, inputs=(a.recorded, b.recorded)), given=(a.marks, b.marks),
        factors=(a.tensor, b.tensor), joint=joint,
    )  # fmt: skip


def _axes(total: MarkedOp) -> Sequence[int] | None:
    """The axes that a sum adds up; None: all of them, or they are kept."""
    dim: Any = total.args[1] if len(total.args) > 1 else total.options.get("dim")
    is_kept = total.args[2] if len(total.args) > 2 else total.options.get("keepdim", False)
    axes = [dim] if isinstance(dim, int) else list(dim) if isinstance(dim, tuple | list) else []
    return axes if axes and not is_kept and all(isinstance(axis, int) for axis in axes) else None


def _factor(product: MarkedOp, at: int, letters: str, beside: tuple[int, ...]) -> _Factor | None:
    """One of the two that a product multiplies; None: it holds no tokens. beside: the shape of the other."""
    tensor, marks, recorded = product.tensors[at], product.given[at], product.inputs[at]
    if marks is None or marks.kind not in ("token", "pair"):
        return None
    axes = letters[len(letters) - tensor.ndim :]
    sizes = dict(zip(reversed(letters), reversed(beside), strict=False))
    repeated = [axis for axis, each in enumerate(axes) if tensor.shape[axis] == 1 and sizes.get(each, 1) > 1]

    def without(array: Tensor) -> Tensor:
        return array.squeeze(tuple(repeated))

    value = None if recorded.value is None else without(recorded.value)
    kept = "".join(each for axis, each in enumerate(axes) if axis not in repeated)
    shape = tuple(size for axis, size in enumerate(tensor.shape) if axis not in repeated)
    return _Factor(replace(recorded, shape=shape, value=value), without(tensor), marks.through(without), kept)


def _is_of_attention(factors: Sequence[_Factor], summed: set[str]) -> bool:
    kinds = {each.marks.kind for each in factors}
    tokens = [each for each in factors if each.marks.kind == "token"]
    by_axis = [(each.marks.arrays, each.letters.index(letter)) for each in tokens for letter in summed]
    if kinds == {"token"}:
        # of as many queries as keys, each with its own, as along the edges of a graph, other sums are made
        is_laid_over = factors[0].letters != factors[1].letters
        return is_laid_over and all(
            not _varies(arrays["t"], axis) and _varies(arrays["f"], axis) for arrays, axis in by_axis
        )
    return kinds == {"pair", "token"} and all(_varies(arrays["t"], axis) for arrays, axis in by_axis)


def _varies(marks: Tensor, axis: int) -> bool:
    """Whether two known marks differ along an axis; those of what fills a tensor up are not known."""
    if not marks.numel():
        return False
    least = marks.where(marks >= 0, marks.max()).amin(axis)
    return bool((marks.amax(axis) > least).any())
