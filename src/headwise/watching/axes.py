"""Axes: which axes of attention scores lie in every axis of a tensor that views have moved, merged and split."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

__all__ = ["Axes", "Axis"]


@dataclass(eq=False, slots=True)
class Axis:
    """One axis of the scores, such as that of the keys; parts: what a view has split it into, outermost first."""

    size: int
    parts: list[Axis] = field(default_factory=list)

    def leaves(self) -> list[Axis]:
        """The axes that it has been split into, itself where it is whole."""
        return [leaf for part in self.parts for leaf in part.leaves()] if self.parts else [self]


@dataclass(frozen=True, slots=True)
class Axes:
    """For every axis of a tensor, the axes of the scores that are merged in it, outermost first."""

    groups: tuple[tuple[Axis, ...], ...]

    @staticmethod
    def of(shape: Sequence[int]) -> Axes:
        """New axes, one for every size."""
        return Axes(tuple((Axis(size),) for size in shape))

    def whole(self) -> tuple[tuple[Axis, ...], ...]:
        """The groups, with every axis as its parts."""
        return tuple(tuple(leaf for axis in group for leaf in axis.leaves()) for group in self.groups)

    def leaves(self) -> list[Axis]:
        """All axes in the order in which they lie."""
        return [leaf for group in self.whole() for leaf in group]

    def alone(self, position: int) -> Axis | None:
        """The one axis at a position of the tensor; None: none or several are merged there."""
        group = self.whole()[position]
        several = [axis for axis in group if axis.size != 1] or list(group[:1])
        return several[0] if len(several) == 1 else None

    def permuted(self, order: Sequence[int]) -> Axes:
        """The axes after `Tensor.permute(order)`."""
        return Axes(tuple(self.groups[n] for n in order))

    def reshaped(self, shape: Sequence[int]) -> Axes | None:
        """The axes after a reshape; an axis that it cuts is split for all who know it. None: no whole parts fit."""
        waiting, cuts = self.leaves(), []
        groups: list[tuple[Axis, ...]] = []
        for size in shape:
            group: list[Axis] = []
            count = 1
            while count < size and waiting:
                axis = waiting.pop(0)
                if count * axis.size > size:
                    outer = size // count
                    if size % count or axis.size % outer:
                        return None
                    parts = [Axis(outer), Axis(axis.size // outer)]
                    cuts.append((axis, parts))
                    axis = parts[0]
                    waiting.insert(0, parts[1])
                group.append(axis)
                count *= axis.size
            if size == 1 and waiting and waiting[0].size == 1:
                group.append(waiting.pop(0))
            if count != size:
                return None
            groups.append(tuple(group))
        if any(axis.size != 1 for axis in waiting):
            return None
        if waiting and groups:
            groups[-1] = (*groups[-1], *waiting)
        for axis, parts in cuts:
            axis.parts = parts
        return Axes(tuple(groups))

    def split(self, tensor: Tensor) -> tuple[Tensor, list[Axis]] | None:
        """A tensor that broadcasts against one with these axes, with one dimension for every axis; and these axes.

        None: it broadcasts along a part of merged axes.
        """
        groups = self.whole()
        if tensor.ndim > len(groups):
            return None
        tensor = tensor[(None,) * (len(groups) - tensor.ndim)]
        shape: list[int] = []
        dropped: list[int] = []
        for position, (size, group) in enumerate(zip(tensor.shape, groups, strict=True)):
            if not group:
                dropped.append(position)
            if size == 1:
                shape += [1] * len(group)
            elif size == math.prod(axis.size for axis in group):
                shape += [axis.size for axis in group]
            else:
                return None
        if any(tensor.shape[position] != 1 for position in dropped):
            return None
        return tensor.reshape(shape), [axis for group in groups for axis in group]


def arranged(tensor: Tensor, axes: Sequence[Axis], wanted: Sequence[Axis]) -> Tensor:
    """A tensor with a dimension for each of `axes`, 1 or of its size, moved and split to `wanted`, 1 where missing."""
    shape: list[int] = []
    leaves: list[Axis] = []
    for size, axis in zip(tensor.shape, axes, strict=False):
        parts = axis.leaves()
        leaves += parts
        shape += [1] * len(parts) if size == 1 else [part.size for part in parts]
    features = tensor.shape[len(axes) :]
    tensor = tensor.reshape(*shape, *features)
    if any(size != 1 for size, leaf in zip(tensor.shape, leaves, strict=False) if leaf not in wanted):
        raise ValueError(f"a tensor {tuple(tensor.shape)} has an axis that is not among those wanted")
    present = [leaves.index(axis) for axis in wanted if axis in leaves]
    absent = [n for n, leaf in enumerate(leaves) if leaf not in wanted]
    tensor = tensor.permute(*present, *absent, *range(len(leaves), tensor.ndim))
    sizes = iter(tensor.shape)
    return tensor.reshape(*(next(sizes) if axis in leaves else 1 for axis in wanted), *features)


def merged(tensor: Tensor, groups: Sequence[Sequence[Axis]]) -> Tensor:
    """A tensor with a dimension for every axis of some groups, 1 or of its size, with one dimension for each group.

    A group along which it broadcasts stays 1, unless it does so along a part of the group only.
    """
    at, sizes, expanded = 0, [], []
    for group in groups:
        came = tensor.shape[at : at + len(group)]
        is_shared = all(size == 1 for size in came)
        expanded += list(came) if is_shared else [axis.size for axis in group]
        sizes.append(1 if is_shared else math.prod(axis.size for axis in group))
        at += len(group)
    rest = tensor.shape[at:]
    return torch.reshape(tensor.expand(*expanded, *rest), (*sizes, *rest))
