"""Kept provenance: the marks of results each entry of which is of one token, as of layers, poolings and sums."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import torch

from headwise.dataflow.contractions import is_constant
from headwise.dataflow.provenance import LOST, Marks, place_of, sample_of, source_of, token, tokens

__all__ = [
    "as_complex",
    "as_one_token",
    "as_real",
    "embedded",
    "fresh_features",
    "from_places",
    "last_states",
    "packed",
    "pooled",
    "recurrent",
    "summed",
]


def as_one_token(
    input_marks: tuple[Marks | None, ...], args: Sequence[Any], options: Mapping[str, Any]
) -> tuple[Marks | None, ...]:
    """The marks of what is put side by side, where it is features of tokens at the same places of several arguments, as
    of items and their categories: those of one token.
    """
    marks = [mark for mark in input_marks if mark is not None and mark.kind == "token"]
    axis = options.get("dim", options.get("axis", args[1] if len(args) > 1 else 0))
    if len(marks) < max(2, len(input_marks)) or not all(mark.shape[axis] for mark in marks):
        return input_marks
    ends = [mark.arrays["t"].narrow(axis, 0, 1) for mark in marks]
    is_of_features = all(
        is_constant(mark.arrays["t"], axis) and not is_constant(mark.arrays["f"], axis) for mark in marks
    )
    is_beside = all(
        end.shape == ends[0].shape
        and torch.equal(place_of(end), place_of(ends[0]))
        and torch.equal(sample_of(end), sample_of(ends[0]))
        for end in ends
    )
    if not is_of_features or not is_beside:
        return input_marks
    return tuple(Marks("token", {**mark.arrays, "t": ends[0].expand(mark.shape)}) for mark in marks)


def fresh_features(marks: Marks | None, shape: tuple[int, ...]) -> Marks:
    if marks is None or marks.kind != "token":
        return LOST
    t = marks.arrays["t"]
    return Marks("token", {"t": t.expand(shape), "f": torch.arange(shape[-1]).expand(shape)})


def embedded(marks: Marks | None, shape: tuple[int, ...]) -> Marks:
    if marks is None or marks.kind != "token":
        return LOST
    return Marks("token", {
        "t": marks.arrays["t"].unsqueeze(-1).expand(shape), "f": torch.arange(shape[-1]).expand(shape),
    })  # fmt: skip


def from_places(marks: Marks | None, shape: tuple[int, ...]) -> Marks:
    """The marks of a convolution: batch first, channels second; with as many positions, each keeps its token. What is
    made of several tokens is of none.
    """
    if marks is None or marks.kind != "token" or not bool((marks.arrays["t"] >= 0).any()):
        return LOST
    channels = torch.arange(shape[1]).reshape(1, -1, *[1] * (len(shape) - 2))
    t = marks.arrays["t"]
    if t.shape[2:] == shape[2:] and t.shape[0] == shape[0] and is_constant(t, 1) and bool((t >= 0).any()):
        return Marks("token", {"t": t[:, :1].expand(shape), "f": channels.expand(shape)})
    # padding before the tokens is none of them
    latest = marks.arrays["t"].flatten(1).amax(1, keepdim=True)
    sample, source = sample_of(latest), int(source_of(latest).max())
    places = torch.arange(max(1, torch.Size(shape[2:]).numel())).reshape(1, 1, *shape[2:])
    samples = sample.reshape(-1, *[1] * (len(shape) - 1))
    return Marks("token", {"t": token(source, samples, places).expand(shape), "f": channels.expand(shape)})


def recurrent(marks: Marks | None, shape: tuple[int, ...]) -> Marks:
    """The marks of the states that a recurrent layer gives for each token of its input."""
    if marks is None or marks.kind != "token":
        return LOST
    return Marks("token", {"t": marks.arrays["t"][..., :1].expand(shape), "f": torch.arange(shape[-1]).expand(shape)})


def last_states(marks: Marks | None, shape: tuple[int, ...], is_first: bool, source: int) -> Marks:
    """The marks of the last states of a recurrent layer, (layers, batch, features): one token for each batch element.

    is_first: the batch is the first axis of the input; source: of these tokens. Of tokens that are packed those of the
    first step come first, one of each batch element.
    """
    if marks is None or marks.kind != "token" or len(shape) != len(("layers", "batch", "features")):
        return LOST
    first = marks.arrays["t"][..., 0]
    first = first if first.ndim == 1 else first.select(1 if is_first else 0, 0)
    samples = sample_of(first[: shape[1]])
    if len(samples) != shape[1] or bool((samples < 0).any()):
        return LOST
    states = tokens(shape, ("feature", "sample", "feature"), source)
    return Marks(
        "token", {**states.arrays, "t": token(source, samples.reshape(1, -1, 1), torch.tensor(0)).expand(shape)}
    )


def packed(function: Callable[..., Any], marks: Marks | None, args: tuple[Any, ...]) -> Marks:
    """The marks of tokens without their padding, one after another, or padded again; padding is no token."""
    if marks is None or marks.kind != "token":
        return LOST
    # padding is made of zeros
    return marks.through(lambda array: function(array + 1, *args[1:])[0] - 1)


def pooled(marks: Marks | None, shape: tuple[int, ...]) -> Marks:
    """The marks of a pooling of places, samples first and channels second, as those of a convolution; of one that
    leaves a single place it is not known.
    """
    is_of_channels = marks is not None and marks.kind == "token" and is_constant(marks.arrays["t"], 1)
    return from_places(marks, shape) if is_of_channels and prod(shape[2:]) > 1 else LOST


def as_complex(marks: Marks | None) -> Marks:
    """The marks of real pairs as complex numbers: their token, and the first feature of each pair."""
    if marks is None or marks.kind != "token" or not is_constant(marks.arrays["t"], marks.arrays["t"].ndim - 1):
        return LOST
    return marks.through(lambda array: array[..., 0])


def as_real(marks: Marks | None) -> Marks:
    """The marks of complex numbers as real pairs: two features of the same token."""
    if marks is None or marks.kind != "token":
        return LOST
    t, f = (marks.arrays[each].unsqueeze(-1).expand(*marks.shape, 2) for each in "tf")
    return Marks("token", {"t": t, "f": f * 2 + torch.arange(2)})


def summed(
    marks: Marks | None,
    before: tuple[int, ...],
    after: tuple[int, ...],
    args: Sequence[Any],
    options: Mapping[str, Any],
) -> Marks:
    """The marks of a sum over axes: those that are constant along them."""
    if marks is None or marks.kind == "lost":
        return LOST
    keep = len(before) == len(after)
    named = options.get("dim", options.get("axis"))
    named = (
        next((argument for argument in args[1:] if isinstance(argument, int | tuple | list)), None)
        if named is None
        else named
    )
    axes = sorted({each % len(before) for each in ([named] if isinstance(named, int) else named or range(len(before)))})
    arrays = {}
    for name, original in marks.arrays.items():
        array = original
        for axis in axes:
            same = is_constant(array, axis)
            array = array.select(axis, 0).unsqueeze(axis)
            if not same and name != "f":
                array = torch.full_like(array, -1)
        arrays[name] = (
            array.expand([1 if a in axes else n for a, n in enumerate(before)]) if keep else array.reshape(after)
        )
    return Marks(marks.kind, arrays)
