"""Rearrangements: other orders of axes for a movement, and other letters for an einsum."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise, permutations
from math import prod
from typing import Any

import torch
from torch import Tensor

from headwise.dataflow import (
    AttentionOps,
    Einsum,
    MarkedOp,
    Marks,
    Run,
    contraction,
    looking,
    operand_marks,
    place_of,
    sample_of,
)
from headwise.diagnosis.checks.head_layout import layout_problems
from headwise.diagnosis.checks.weight_sums import TOLERANCE
from headwise.diagnosis.patches.movements import with_equation
from headwise.diagnosis.repair import Repair
from headwise.diagnosis.suspects import Suspect

__all__ = ["Rearrangement", "rearrangements", "sums_alone", "turns", "unmet_weights"]

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
        function, inputs = entry.function, tuple(entry.inputs[0].shape)

        def right(*args: Any, **options: Any) -> Any:
            return self(args[0]) if tuple(args[0].shape) == inputs else function(*args, **options)

        return right


def rearrangements(run: Run, entry: MarkedOp) -> Iterator[Rearrangement]:
    """The ways to make what a movement made of its input, with axes that keep together what belongs together."""
    marks, shape = entry.given[0] if entry.given else None, entry.outputs[0].shape
    if marks is None or marks.kind != "token":
        return
    numbers = torch.arange(prod(marks.shape)).reshape(marks.shape)
    try:
        output = entry.function(numbers, *entry.args[1:], **entry.options)
    except (RuntimeError, TypeError, ValueError):
        output = None
    if output is not None and (not isinstance(output, Tensor) or output.numel() != numbers.numel()):
        return
    yield from _fitting(_parts(run, marks, shape), shape, numbers, output)


def _fitting(
    many: list[tuple[tuple[int, ...], ...]], shape: tuple[int, ...], numbers: Tensor, output: Tensor | None
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
            rearrangement = Rearrangement(flat, order, shape, cuts)
            key = (flat, order)
            if key in tried or (output is not None and torch.equal(rearrangement(numbers), output)):
                continue
            tried.add(key)
            yield rearrangement


def turns(entry: MarkedOp) -> Iterator[tuple[int, ...]]:
    """The other orders of the axes of what an operation made."""
    rank = len(entry.outputs[0].shape)
    if rank > 4:
        return
    identity = tuple(range(rank))
    for order in sorted(
        permutations(identity), key=lambda order: sum(a != b for a, b in zip(order, identity, strict=True))
    ):
        if order != identity:
            yield order


def _parts(run: Run, marks: Marks, shape: tuple[int, ...]) -> list[tuple[tuple[int, ...], ...]]:
    """How each axis of a tensor may be divided, the likeliest first."""
    choices: list[list[tuple[int, ...]]] = []
    known_sizes = [each for each in shape if each > 1] + [size for size in run.sizes.values() if size > 1]
    for axis, size in enumerate(marks.shape):
        line = {name: _line(each, axis) for name, each in marks.arrays.items()}
        changes_place = bool((place_of(line["t"]) != place_of(line["t"][:1])).any())
        samples = torch.unique(sample_of(line["t"]))
        changes_feature = bool((line["f"] != line["f"][:1]).any())
        cuts_of_size: list[tuple[int, ...]] = [(size,)]
        if changes_feature and not changes_place and len(samples) == 1:
            heads = [run.sizes[name] for name in ("H", "Hkv") if name in run.sizes]
            pairs = [(a, size // a) for a in dict.fromkeys([*heads, *known_sizes]) if 1 < a < size and size % a == 0]
            # several projections in one, each in heads: how many there are, then heads, then the features of a head
            widths = [run.sizes[name] for name in ("d", "dv") if name in run.sizes]
            many = [(size // (a * b), a, b) for a in heads for b in dict.fromkeys([*widths, *known_sizes])
                    if a > 1 and b > 1 and size % (a * b) == 0 and size > a * b]  # fmt: skip
            many = [each for each in dict.fromkeys(many) if set(each) <= set(shape)][:1]
            cuts_of_size = [*many, *[pair for pair in pairs if set(pair) & set(shape)], (size,)]
        elif changes_place and changes_feature and len(samples) == 1:
            # heads and places, or places and channels, that were merged before
            places = place_of(line["t"])
            count = len(torch.unique(places))
            if size % count == 0 and 1 < count < size:
                cuts_of_size = [
                    (count, size // count) if bool(places[0] == places[1]) else (size // count, count),
                    (size,),
                ]
        elif changes_place and len(samples) == 1 and size not in shape:
            # the places of an image, in rows and columns
            cuts_of_size = [pair for pair in pairwise(shape) if prod(pair) == size][-1:] + [(size,)]
        elif len(samples) > 1 and len(samples) < size and size % len(samples) == 0:
            # the slower of the two stands first
            slow = bool(sample_of(line["t"])[0] == sample_of(line["t"])[1])
            count = len(samples)
            cuts_of_size = [(count, size // count) if slow else (size // count, count), (size,)]
        choices.append(cuts_of_size[:4])
    out: list[tuple[tuple[int, ...], ...]] = [()]
    for cuts_of_size in choices:
        out = [(*each, cut) for each in out for cut in cuts_of_size]
    return out


def _line(array: Tensor, axis: int) -> Tensor:
    for across in reversed(range(array.ndim)):
        if across != axis:
            array = array.select(across, 0)
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
        run_of_axes = order[at : at + count]
        at += count
        if list(run_of_axes) != sorted(run_of_axes):
            return False
    return True


def sums_alone(entry: MarkedOp) -> bool:
    """Whether a product sums over an axis that one side has alone."""
    joint = entry.joint
    return joint is not None and not (set(joint.left) ^ set(joint.right)) <= set(joint.out)


def unmet_weights(attention: AttentionOps) -> Suspect | None:
    """That an einsum sums weights and values apart, so that no weight meets its value; None: it does not."""
    entry, joint = attention.context, attention.context.joint
    equation = entry.args[0] if entry.last == "einsum" and entry.args else None
    if not isinstance(equation, str) or joint is None or joint.summed or not sums_alone(entry):
        return None
    is_first = attention.has_weights_left
    right = (each for each in _others(equation, 0 if is_first else 1) if _is_weighted(attention, each, left=is_first))
    corrected = next(right, None)
    repair = Repair() if corrected is None else Repair(rewriting=partial(with_equation, equation=corrected))
    return Suspect("einsum-weights-summed", entry.span, repair, values={"name": equation})


def _others(equation: str, place: int) -> Iterator[str]:
    """The equations in which the letter that the weights sum over alone stands for another one, of the values or of the
    result. place: of the weights among the operands.
    """
    terms, arrow, out = equation.partition("->")
    sides = terms.split(",")
    if not arrow or len(sides) != 2:
        return
    weights, values = sides[place], sides[1 - place]
    for alone in (weight for weight in weights if weight.isalpha() and weight not in values + out):
        shared = [weight for weight in weights if weight.isalpha() and weight in values and weight in out]
        for letter in reversed(shared):
            pair = [weights, values.replace(letter, alone)]
            yield f"{','.join(pair if place == 0 else pair[::-1])}->{out}"
        yield from (f"{terms}->{out.replace(each, alone)}" for each in reversed(shared))


def _is_weighted(attention: AttentionOps, equation: str, *, left: bool) -> bool:
    """Whether by another equation the context is a sum of values by weights that sum to 1, in the same shape.

    left: whether the weights are the first operand.
    """
    entry = attention.context
    joint = contraction("einsum", (equation, *entry.args[1:]), {})
    if joint is None or not joint.is_possible or _shape(joint) != tuple(entry.outputs[0].shape):
        return False
    marks, letters = operand_marks(entry)[0 if left else 1], joint.left if left else joint.right
    if marks is None:
        return False
    looks = looking(marks, [letters.index(axis) for axis in joint.summed])
    changed = replace(attention, context=replace(entry, joint=joint), looks=looks)
    weights = None if layout_problems(changed) else changed.weights
    if weights is None:
        return False
    rows = weights[~weights.isnan().any(dim=-1)]
    return attention.softmax is None or bool(((rows.sum(dim=-1) - 1).abs() < TOLERANCE).all())


def _shape(joint: Einsum) -> tuple[int, ...]:
    sizes = dict(zip(joint.left + joint.right, (*joint.a.shape, *joint.b.shape), strict=True))
    return tuple(sizes[each] for each in joint.out)
