"""Contractions: products of two tensors, with a letter for each axis as in einsum."""

from __future__ import annotations

import string
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

__all__ = ["CONVOLUTIONS", "Einsum", "contraction", "is_constant"]

PRODUCTS = frozenset({"matmul", "bmm", "mm", "__matmul__", "mv"})
CONVOLUTIONS = frozenset({"conv1d", "conv2d", "conv3d"})


@dataclass(frozen=True)
class Einsum:
    """A product of two tensors as an einsum. a, b: the operands. left, right, out: the letters of their axes and of the
    result."""

    a: Tensor
    b: Tensor
    left: str
    right: str
    out: str

    @property
    def summed(self) -> str:
        """The letters that the product sums over."""
        return "".join(letter for letter in self.left if letter in self.right and letter not in self.out)

    @property
    def is_entrywise(self) -> bool:
        """Whether the result has the axes of one operand, whose entries are multiplied as `*` does; none is summed."""
        letters = set(self.left + self.right)
        return letters <= set(self.out) and letters in (set(self.left), set(self.right))

    @property
    def is_possible(self) -> bool:
        """Whether each letter has one size, or 1 and another; in a failed operation it may have two."""
        return all(a in (1, b) for _, a, b in self._sizes())

    def spread(self, marks: Tensor, letters: str, shape: tuple[int, ...]) -> Tensor:
        """The marks of an operand broadcast to the result, at index 0 of the summed axes."""
        kept = [letter for letter in letters if letter in self.out]
        for axis in reversed(range(len(letters))):
            if letters[axis] not in self.out:
                marks = marks.select(axis, 0)
        order = [kept.index(letter) for letter in self.out if letter in kept]
        marks = marks.permute(order)
        full = [marks.shape[order.index(kept.index(letter))] if letter in kept else 1 for letter in self.out]
        return marks.reshape(full).expand(shape)

    def flat(self, marks: Tensor, *, left: bool, apart: str = "") -> Tensor:
        """The marks of an operand as (batch, rows, summed). apart: letters that count as batch too."""
        letters = self.left if left else self.right
        problems = [letter for letter in self.out if letter in self.left and letter in self.right]
        problems += [letter for letter in letters if letter in apart and letter not in problems]
        rows = [letter for letter in letters if letter in self.out and letter not in problems]
        sizes = {letter: max(a, b) for letter, a, b in self._sizes()}
        order = [letter for letter in [*problems, *rows, *self.summed] if letter in letters]
        for axis in reversed(range(len(letters))):
            if letters[axis] not in order:
                # an axis that only this operand has and that is summed, such as heads
                marks = marks.select(axis, 0)
        letters = "".join(letter for letter in letters if letter in order)
        marks = marks.permute([letters.index(letter) for letter in order])
        marks = marks.expand([sizes.get(letter, n) for letter, n in zip(order, marks.shape, strict=True)])
        count = {"p": 1, "r": 1, "c": 1}
        for letter in order:
            part = "p" if letter in problems else "r" if letter in rows else "c"
            count[part] *= sizes[letter]
        return marks.reshape(count["p"], count["r"], count["c"])

    def _sizes(self) -> list[tuple[str, int, int]]:
        sizes: dict[str, list[int]] = {}
        for letters, operand in ((self.left, self.a), (self.right, self.b)):
            for letter, size in zip(letters, operand.shape, strict=True):
                sizes.setdefault(letter, []).append(size)
        return [(letter, min(lengths), max(lengths)) for letter, lengths in sizes.items()]


def contraction(function: str, args: tuple[Any, ...], options: Mapping[str, Any]) -> Einsum | None:
    """The contraction that a call of torch computes; None: it is no product of two tensors."""
    last = function.rpartition(".")[2]
    operands = [*args, *[value for name, value in options.items() if name not in ("out",)]]
    tensors = [operand for operand in operands if isinstance(operand, Tensor)]
    if last in PRODUCTS and len(tensors) >= 2:
        return _product(tensors[0], tensors[1])
    if last == "__rmatmul__" and len(tensors) >= 2:
        return _product(tensors[1], tensors[0])
    if last in ("baddbmm", "addmm", "addbmm") and len(tensors) >= 3 and last != "addbmm":
        return _product(tensors[1], tensors[2])
    if last == "linear" and len(tensors) >= 2:
        x, weight = tensors[:2]
        letters = string.ascii_letters[: x.ndim]
        return Einsum(x, weight, letters, "Z" + letters[-1], letters[:-1] + "Z")
    if last in CONVOLUTIONS and len(tensors) >= 2 and not options and _is_pointwise(args[3:5]):
        return _of_channels(*tensors[:2])
    if last == "einsum":
        return _einsum(operands)
    if last == "tensordot" and len(tensors) == 2:
        dims = options.get("dims", args[2] if len(args) > len(tensors) else 2)
        return _tensordot(tensors[0], tensors[1], dims)
    return None


def _tensordot(a: Tensor, b: Tensor, dims: Any) -> Einsum | None:
    """The contraction of tensordot. dims: the number of summed axes at the end of a and the start of b, or lists."""
    if isinstance(dims, int):
        dims = (range(a.ndim - dims, a.ndim), range(dims))
    if not isinstance(dims, tuple | list) or len(dims) != 2:
        return None
    sides = [[dim] if isinstance(dim, int) else list(dim) for dim in dims]
    left = list(string.ascii_lowercase[: a.ndim])
    right = list(string.ascii_uppercase[: b.ndim])
    for left_axis, right_axis in zip(*sides, strict=True):
        right[right_axis] = left[left_axis]
    out = [letter for letter in left if letter not in right] + [letter for letter in right if letter not in left]
    return Einsum(a, b, "".join(left), "".join(right), "".join(out))


def _is_pointwise(rest: tuple[Any, ...]) -> bool:
    """Whether a stride and a padding, as a convolution takes them, leave each place where it is."""
    numbers = [set(each) if isinstance(each, tuple | list) else {each} for each in rest]
    return all(each <= {usual} for each, usual in zip(numbers, (1, 0), strict=False))


def _of_channels(x: Tensor, weight: Tensor) -> Einsum | None:
    """The contraction of a convolution that takes one place at a time, as those that mix heads do; None: it is none."""
    if weight[0, 0].numel() != 1 or x.ndim != weight.ndim or weight.shape[1] != x.shape[1]:
        return None
    letters = string.ascii_letters[: x.ndim]
    return Einsum(x, weight.flatten(1), letters, "Z" + letters[1], f"{letters[0]}Z{letters[2:]}")


def _product(a: Tensor, b: Tensor) -> Einsum | None:
    if a.ndim < 1 or b.ndim < 1:
        return None
    batch = string.ascii_lowercase[: max(a.ndim, b.ndim, 2) - 2]
    left = (batch[len(batch) - (a.ndim - 2) :] if a.ndim > 2 else "") + ("YC" if a.ndim > 1 else "C")
    right = (batch[len(batch) - (b.ndim - 2) :] if b.ndim > 2 else "") + ("CZ" if b.ndim > 1 else "C")
    out = batch + ("Y" if a.ndim > 1 else "") + ("Z" if b.ndim > 1 else "")
    return Einsum(a, b, left, right, out)


def _einsum(values: list[Any]) -> Einsum | None:
    parsed = _parsed(values)
    if parsed is None or len(parsed[0]) != 2:
        return None
    operands, (left, right), out = parsed
    return Einsum(operands[0], operands[1], left, right, out)


def _parsed(values: list[Any]) -> tuple[list[Tensor], list[str], str] | None:
    """The operands of an einsum, the letters of each and of the result; None: a letter stands twice in one of them."""
    operands = [value for value in values if isinstance(value, Tensor)]
    for value in values:
        if isinstance(value, tuple | list):
            operands += [t for t in value if isinstance(t, Tensor)]
    equation = next((value for value in values if isinstance(value, str)), "")
    left, arrow, out = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(operands) != len(terms):
        return None
    spare = [letter for letter in string.ascii_letters if letter not in equation]
    counts = [operand.ndim - len(term.replace("...", "")) for operand, term in zip(operands, terms, strict=True)]
    dots = "".join(spare[: max([count for count, term in zip(counts, terms, strict=True) if "..." in term], default=0)])
    if not arrow:
        both = "".join(terms).replace(".", "")
        out = ("..." if dots else "") + "".join(sorted(letter for letter in set(both) if both.count(letter) == 1))
    terms = [
        term.replace("...", dots[len(dots) - count :] if count else "")
        for term, count in zip(terms, counts, strict=True)
    ]
    if any(len(set(term)) < len(term) for term in terms):
        return None
    return operands, terms, out.replace("...", dots)


def is_constant(marks: Tensor, axis: int) -> bool:
    """Whether marks are constant along an axis, apart from unknown ones."""
    if not marks.numel() or marks.shape[axis] == 1 or marks.stride(axis) == 0:
        return True
    largest = marks.amax(axis, keepdim=True)
    return bool(((marks == largest) | (marks < 0)).all())
