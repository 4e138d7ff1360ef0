"""Product layout: where batch, heads, tokens and channels lie in a product of weights with values."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from headwise.watching.axes import Axis, arranged, merged
from headwise.watching.contraction import Contraction

__all__ = ["ProductLayout"]


@dataclass(frozen=True, eq=False)
class ProductLayout:
    """The axes of the weights that lie in each axis of a product of weights with values.

    product: the contraction. side: which of its factors the weights are. letters: of the axes that weights have, the
    axes of the scores in each. lead: those that make up the batch, and those of the heads. queries: that of the rows.
    """

    product: Contraction
    side: int
    letters: dict[str, list[Axis]]
    lead: tuple[list[Axis], list[Axis]]
    queries: Axis
    key: Axis

    def values(self) -> Tensor | None:
        """The values as (B, Hk, Lk, Dv); None: they do not lie so."""
        letters, v = self.product.letters[1 - self.side], self.product.factors[1 - self.side]
        if self.product.addend is not None or self.product.multiplier != 1.0:
            return None
        sizes = [math.prod(axis.size for axis in group) for group in self.lead]
        try:
            four = self._four(v, letters, [*self.lead, [self.key]])
            return None if four is None else four.expand(*sizes, -1, -1)
        except (RuntimeError, ValueError):
            # values of more samples than the weights, or along a part of a merged axis
            return None

    def context(self, result: Tensor) -> Tensor | None:
        """The result of the product as (B, Hq, Lq, Dv); None: it does not lie so."""
        return self._four(result, self.product.result, [*self.lead, [self.queries]])

    def laid_back(self, context: Tensor, result: Tensor) -> Tensor:
        """(B, Hq, Lq, Dv) in the shape and the order of the axes of the result."""
        numbers = torch.arange(result.numel(), device=result.device).reshape(result.shape)
        four = self.context(numbers)
        if four is None:
            raise ValueError("a product whose axes are not known has no order")
        order = torch.empty_like(numbers).flatten()
        order[four.flatten()] = numbers.flatten()
        return context.flatten()[order].reshape(result.shape)

    def _four(self, tensor: Tensor, letters: str, groups: list[list[Axis]]) -> Tensor | None:
        """A tensor with a dimension for each group, and its channels last."""
        channels = [n for n, c in enumerate(letters) if c not in self.letters]
        others = [n for n, c in enumerate(letters) if c in self.letters]
        axes: list[Axis] = []
        shape: list[int] = []
        for n in others:
            leaves = self.letters[letters[n]]
            size = tensor.shape[n]
            if size not in (1, math.prod(leaf.size for leaf in leaves)):
                return None
            axes += leaves
            shape += [1] * len(leaves) if size == 1 else [leaf.size for leaf in leaves]
        wanted = [axis for group in groups for axis in group]
        if any(leaf.size != 1 for leaf in axes if leaf not in wanted):
            return None
        moved = tensor.permute(*others, *channels)
        last = math.prod(moved.shape[len(others) :])
        four = merged(arranged(moved.reshape(*shape, last), axes, wanted), groups)
        return four if four.ndim == len(groups) + 1 else None
