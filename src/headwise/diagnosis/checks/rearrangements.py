"""Rearrangements: other ways to bring a tensor into the shape that a view, reshape or transpose gave it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise, permutations
from math import prod
from typing import Any

import torch
from torch import Tensor

from headwise.dataflow import MarkedOp, Marks, Run, place_of, sample_of

__all__ = ["Rearrangement", "rearrangements", "turns"]

# more axes than this are not tried in all their orders
MOST = 6


@dataclass(frozen=True)
class Rearrangement:
    """First each axis of the input into `parts`, then these in another order, then into `shape`."""

    parts: tuple[int, ...]
    order: tuple[int, ...]
    shape: tuple[int, ...]
    cuts: tuple[int, ...]

    def __call__(self, x: Tensor) -> Tensor:
        return x.reshape(self.parts).permute(self.order).reshape(self.shape)

    def instead(self, entry: MarkedOp) -> Callable[..., Any]:
        """A stand-in for an operation; not for another at the same place, as a library makes several of one call."""
        function, given = entry.function, tuple(entry.operation.inputs[0].shape)

        def right(*args: Any, **options: Any) -> Any:
            return self(args[0]) if tuple(args[0].shape) == given else function(*args, **options)

        return right


def rearrangements(run: Run, entry: MarkedOp) -> Iterator[Rearrangement]:
    """The ways to make what a movement made of its input, with axes that keep together what belongs together."""
    marks, shape = entry.given[0] if entry.given else None, entry.operation.outputs[0].shape
    if marks is None or marks.kind != "token":
        return
    numbers = torch.arange(prod(marks.shape)).reshape(marks.shape)
    try:
        made = entry.function(numbers, *entry.args[1:], **entry.options)
    except (RuntimeError, TypeError, ValueError):
        made = None
    if made is not None and (not isinstance(made, Tensor) or made.numel() != numbers.numel()):
        return
    yield from _fitting(_parts(run, marks, shape), shape, numbers, made)


def _fitting(
    many: list[tuple[tuple[int, ...], ...]], shape: tuple[int, ...], numbers: Tensor, made: Tensor | None
) -> Iterator[Rearrangement]:
    tried: set[tuple[object, ...]] = set()
    for parts in many:
        flat = tuple(size for axis in parts for size in axis)
        if len(flat) > MOST:
            continue
        for order in permutations(range(len(flat))):
            cuts = _cuts([flat[each] for each in order], shape)
            if cuts is None or not _in_order(order, cuts):
                continue
            found = Rearrangement(flat, order, shape, cuts)
            key = (flat, order)
            if key in tried or (made is not None and torch.equal(found(numbers), made)):
                continue
            tried.add(key)
            yield found


def turns(entry: MarkedOp) -> Iterator[tuple[int, ...]]:
    """The other orders of the axes of what an operation made."""
    rank = len(entry.operation.outputs[0].shape)
    if rank > 4:
        return
    identity = tuple(range(rank))
    for order in sorted(
        permutations(identity), key=lambda each: sum(a != b for a, b in zip(each, identity, strict=True))
    ):
        if order != identity:
            yield order


def _parts(run: Run, marks: Marks, shape: tuple[int, ...]) -> list[tuple[tuple[int, ...], ...]]:
    """How each axis of a tensor may be divided, the likeliest first."""
    choices: list[list[tuple[int, ...]]] = []
    known = [each for each in shape if each > 1] + [size for size in run.sizes.values() if size > 1]
    for axis, size in enumerate(marks.shape):
        line = {name: _line(each, axis) for name, each in marks.arrays.items()}
        changes_place = bool((place_of(line["t"]) != place_of(line["t"][:1])).any())
        samples = torch.unique(sample_of(line["t"]))
        changes_feature = bool((line["f"] != line["f"][:1]).any())
        own: list[tuple[int, ...]] = [(size,)]
        if changes_feature and not changes_place and len(samples) == 1:
            heads = [run.sizes[name] for name in ("H", "Hkv") if name in run.sizes]
            pairs = [(a, size // a) for a in dict.fromkeys([*heads, *known]) if 1 < a < size and size % a == 0]
            # several projections in one, each in heads: how many there are, then heads, then the features of a head
            widths = [run.sizes[name] for name in ("d", "dv") if name in run.sizes]
            many = [(size // (a * b), a, b) for a in heads for b in dict.fromkeys([*widths, *known])
                    if a > 1 and b > 1 and size % (a * b) == 0 and size > a * b]  # fmt: skip
            many = [each for each in dict.fromkeys(many) if set(each) <= set(shape)][:1]
            own = [*many, *[each for each in pairs if set(each) & set(shape)], (size,)]
        elif changes_place and changes_feature and len(samples) == 1:
            # heads and places, or places and channels, that were merged before
            places = place_of(line["t"])
            count = len(torch.unique(places))
            if size % count == 0 and 1 < count < size:
                own = [(count, size // count) if bool(places[0] == places[1]) else (size // count, count), (size,)]
        elif changes_place and len(samples) == 1 and size not in shape:
            # the places of an image, in rows and columns
            own = [pair for pair in pairwise(shape) if prod(pair) == size][-1:] + [(size,)]
        elif len(samples) > 1 and len(samples) < size and size % len(samples) == 0:
            # the slower of the two stands first
            slow = bool(sample_of(line["t"])[0] == sample_of(line["t"])[1])
            count = len(samples)
            own = [(count, size // count) if slow else (size // count, count), (size,)]
        choices.append(own[:4])
    out: list[tuple[tuple[int, ...], ...]] = [()]
    for own in choices:
        out = [(*each, one) for each in out for one in own]
    return out


def _line(array: Tensor, axis: int) -> Tensor:
    for other in reversed(range(array.ndim)):
        if other != axis:
            array = array.select(other, 0)
    return array


def _cuts(sizes: list[int], shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """How many parts go into each axis of a shape; None: they do not make it up."""
    out, at = [], 0
    for size in shape:
        product, first = 1, at
        while product < size and at < len(sizes):
            product *= sizes[at]
            at += 1
        if product != size:
            return None
        out.append(at - first)
    return tuple(out) if at == len(sizes) else None


def _in_order(order: tuple[int, ...], cuts: tuple[int, ...]) -> bool:
    """Whether parts that are merged stand as they stood: heads before channels, samples before heads."""
    at = 0
    for count in cuts:
        own = order[at : at + count]
        at += count
        if list(own) != sorted(own):
            return False
    return True
