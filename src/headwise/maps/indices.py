"""Indices: what torch's indices mean on the four axes of a map, and which block of it they need."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from headwise.errors import ArgumentError, OutOfRangeError

AXES = ("B", "Hq", "Lq", "Lk")
# what is taken from an axis: a run of it, or entries in any order
Taken = slice | Tensor
# pairs computed one by one cost about as much as this many of a block
POINTS = 32


@dataclass(frozen=True)
class Index:
    """A legal index of a map of this shape: one entry an axis, but a bool tensor of more axes stands for them all.

    Tensors of an index stay on the CPU, where they are checked without reading the map's device.
    """

    shape: tuple[int, ...]
    entries: tuple[int | slice | Tensor, ...]
    device: torch.device

    @staticmethod
    def read(index: Any, shape: Sequence[int], device: torch.device) -> Index:
        """The index as torch reads it; OutOfRangeError or ArgumentError where it is none of this map's."""
        items = list(index) if isinstance(index, tuple) else [index]
        entries = [_entry(item) for item in items]
        _check_count(entries, len(shape))
        if not any(item is Ellipsis for item in entries):
            entries.append(Ellipsis)
        place = next(n for n, item in enumerate(entries) if item is Ellipsis)
        missing = len(shape) - sum(map(_width, entries))
        entries[place : place + 1] = [slice(None)] * missing
        return Index(tuple(shape), tuple(_within(entries, shape)), device)

    def coordinates(self) -> list[Tensor]:
        """For each axis, the index that every entry of the result comes from; all of the result's shape, on device."""
        places_read = []
        for axis, size in enumerate(self.shape):
            along = [size if n == axis else 1 for n in range(len(self.shape))]
            places = torch.arange(size, device="cpu").view(along).expand(self.shape)[self.entries]
            places_read.append(places.to(self.device))
        return places_read

    def result_shape(self) -> torch.Size:
        """The shape of what the index gives, by torch's own rules."""
        tensors = [e for e in self.entries if isinstance(e, Tensor)]
        try:
            if tensors:
                # torch.broadcast_shapes brings sympy, which takes a second to import
                torch.broadcast_tensors(*tensors)
        except RuntimeError as error:
            came = ", ".join(str(tuple(t.shape)) for t in tensors)
            raise ArgumentError(f"tensors in one index must broadcast to one shape, but {came} came") from error
        return torch.zeros((), device="cpu").expand(self.shape)[self.entries].shape

    def block(self) -> tuple[tuple[Taken, ...], tuple[Any, ...]]:
        """What to take from each axis, and the index that picks the result from the block so taken; on the CPU."""
        taken: list[Taken] = []
        left: list[Any] = []
        for entry, size in zip(self.entries, self.shape, strict=True):
            if isinstance(entry, Tensor):
                values, places = entry.unique(return_inverse=True)
                taken.append(values)
                left.append(places)
            elif isinstance(entry, slice):
                run = range(size)[entry]
                taken.append(slice(run.start, max(run.start, run.stop), run.step))
                left.append(slice(None))
            else:
                taken.append(slice(entry, entry + 1))
                left.append(0)
        return tuple(taken), tuple(left)


def count(taken: Taken, size: int) -> int:
    """How many entries are taken from an axis of this size."""
    return taken.numel() if isinstance(taken, Tensor) else len(range(size)[taken])


def run(taken: Taken, size: int) -> slice:
    """The run of an axis of this size that holds all that is taken from it."""
    if isinstance(taken, Tensor):
        return slice(int(taken.min()), int(taken.max()) + 1) if taken.numel() else slice(0, 0)
    entries = range(size)[taken]
    return slice(entries[0], entries[-1] + 1) if entries else slice(0, 0)


def whole(name: str, value: Any) -> int:
    """A count that someone gave, as an int; ArgumentError where it is no whole number."""
    try:
        return operator.index(value)
    except TypeError as error:
        raise ArgumentError(f"{name} must be a whole number, but {value!r} came: give an int") from error


def _entry(item: Any) -> Any:
    """One item of an index as int, slice, Ellipsis or a tensor of int64 or bool on the CPU."""
    if item is Ellipsis or isinstance(item, slice):
        return item
    if item is None or isinstance(item, bool):
        raise ArgumentError(
            f"a map is indexed by ints, slices, tensors and ..., but {item} came: reshape what it gives"
        )
    if isinstance(item, list):
        if any(isinstance(x, slice) or x is None or x is Ellipsis for x in item):
            raise ArgumentError(f"a list in an index holds numbers, but {item} came: use a tuple to index several axes")
        item = torch.as_tensor(item, dtype=None if item else torch.int64)
    if not isinstance(item, Tensor):
        if hasattr(item, "__array__") and getattr(item, "ndim", 0) > 0:
            item = torch.as_tensor(item)
        else:
            try:
                return operator.index(item)
            except TypeError as error:
                raise ArgumentError(
                    f"a map is indexed by ints, slices, tensors and ..., but {type(item).__name__} came: convert it"
                ) from error
    is_whole = not item.is_floating_point() and not item.is_complex() and item.dtype is not torch.uint8
    if not is_whole or (item.dtype is torch.bool and item.ndim == 0):
        raise ArgumentError(
            f"a tensor that indexes a map holds int64, or bool for a selection, but {item.dtype} of shape "
            f"{tuple(item.shape)} came: cast it"
        )
    if item.dtype is torch.bool:
        return item.to("cpu")
    return int(item) if item.ndim == 0 else item.to("cpu", torch.int64)


def _width(entry: Any) -> int:
    """How many axes an entry stands for."""
    if entry is Ellipsis:
        return 0
    return entry.ndim if isinstance(entry, Tensor) and entry.dtype is torch.bool else 1


def _check_count(entries: list[Any], axes: int) -> None:
    dots = sum(item is Ellipsis for item in entries)
    wanted = sum(map(_width, entries))
    if dots > 1 or wanted > axes:
        raise ArgumentError(
            f"a map has {axes} axes ({', '.join(AXES)}), but the index names {wanted} and has {dots} ...: give at most "
            f"{axes} and one ..."
        )


def _within(entries: list[Any], shape: Sequence[int]) -> list[int | slice | Tensor]:
    """The entries with nothing negative and no bool, each known to lie in its axis."""
    indices: list[int | slice | Tensor] = []
    for entry in entries:
        axis = len(indices)
        name, size = AXES[axis], shape[axis]
        if isinstance(entry, slice):
            indices.append(_slice(entry, name))
        elif isinstance(entry, int):
            if not -size <= entry < size:
                raise OutOfRangeError(_outside(name, size, entry))
            indices.append(entry % size)
        elif entry.dtype is torch.bool:
            indices += _selected(entry, axis, shape)
        else:
            if entry.numel() and not (-size <= int(entry.min()) and int(entry.max()) < size):
                worst = int(entry.max()) if int(entry.max()) >= size else int(entry.min())
                raise OutOfRangeError(_outside(name, size, worst))
            indices.append(torch.where(entry < 0, entry + size, entry))
    return indices


def _slice(entry: slice, name: str) -> slice:
    if entry.step is not None and operator.index(entry.step) < 1:
        raise ArgumentError(
            f"a slice of axis {name} needs a step of 1 or more, as in torch, but {entry.step} came: flip the result"
        )
    return entry


def _selected(entry: Tensor, axis: int, shape: Sequence[int]) -> list[Tensor]:
    """A bool tensor as the indices of its True entries, one tensor an axis."""
    for n, size in enumerate(entry.shape):
        if size != shape[axis + n]:
            raise OutOfRangeError(
                f"a bool index of axis {AXES[axis + n]} must have its size {shape[axis + n]}, but {size} came: give "
                "one entry to each"
            )
    return list(entry.nonzero(as_tuple=True))


def _outside(name: str, size: int, came: int) -> str:
    if size == 0:
        return f"axis {name} of this map is empty, but index {came} came: there is nothing to take from it"
    return f"axis {name} of this map has size {size}, so an index lies in {-size}..{size - 1}; got {came}"
