"""Windows: whether those of an image are put back as they were taken."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch import Tensor

from headwise.dataflow import MarkedOp, is_constant, place_of
from headwise.diagnosis.repair import Repair
from headwise.diagnosis.suspects import Suspect
from headwise.recording import Site

__all__ = ["windows_back"]

VIEWS = frozenset({"view", "reshape", "unflatten"})
# axes of what holds windows: samples, two counts, two sizes, channels
WINDOWED = 5


def windows_back(
    after: Sequence[MarkedOp], is_right: Callable[[dict[Site, Callable[..., Any]]], bool]
) -> Suspect | None:
    """Windows that are put back in another order than they were taken in: by a view whose counts and sizes changed
    places, by another order of axes, or by a roll the wrong way.

    after: the movements behind an attention. is_right: whether all tokens come to their own places with stand-ins.
    """
    for entry in after:
        for right in _otherwise(entry):
            stand_ins = {entry.site: right}
            if is_right(stand_ins):
                return Suspect("windows-misplaced", entry.span, Repair(stand_ins, is_local=True))
    return None


def _otherwise(entry: MarkedOp) -> Iterator[Callable[..., Any]]:
    """What a view with two neighbouring sizes exchanged, another order of axes, or a roll the other way would do."""
    marks = entry.output_marks[0] if entry.output_marks else None
    if entry.last == "roll":
        yield _rolled_back(entry)
    elif marks is not None and marks.kind == "token" and len(marks.shape) >= WINDOWED:
        axes = [axis for axis in range(1, len(marks.shape)) if not is_constant(marks.arrays["t"], axis)]
        yield from _viewed(entry, axes) if entry.last in VIEWS else ()
        yield from _permuted(entry, axes, place_of(marks.arrays["t"])) if entry.last == "permute" else ()


def _viewed(entry: MarkedOp, axes: Sequence[int]) -> Iterator[Callable[..., Any]]:
    """Views with the sizes of two neighbouring axes exchanged."""
    shape = entry.outputs[0].shape
    for at in (axis for axis in axes if axis - 1 in (0, *axes)):
        sizes = (*shape[: at - 1], shape[at], shape[at - 1], *shape[at + 1 :])
        # one window alone is in its place either way
        if sizes != shape and min(shape[at - 1 : at + 1]) > 1:
            yield lambda x, *_, sizes=sizes, **__: x.reshape(sizes)


def _permuted(entry: MarkedOp, axes: Sequence[int], place: Tensor) -> Iterator[Callable[..., Any]]:
    """The permutation with these axes in the order of their tokens: the further apart neighbours along an axis lie in
    the input, the further in front it stands.
    """
    function = entry.function
    order = sorted(axes, key=lambda axis: -_step(place, axis))
    if order != list(axes):
        places = dict(zip(axes, order, strict=True))
        dims = [places.get(axis, axis) for axis in range(place.ndim)]
        yield lambda *args, **options: function(*args, **options).permute(dims)


def _step(place: Tensor, axis: int) -> int:
    """How far neighbours along an axis lie from each other, most of them; padding has no place."""
    size = place.shape[axis] - 1
    first, second = place.narrow(axis, 0, size), place.narrow(axis, 1, size)
    steps = (second - first)[(first >= 0) & (second >= 0)]
    return int(steps.mode().values) if steps.numel() else 0


def _rolled_back(entry: MarkedOp) -> Callable[..., Any]:
    """A roll the other way."""
    function, (args, options) = entry.function, entry.rules
    shifts = options.get("shifts", args[1] if len(args) > 1 else 0)
    dims = options.get("dims", args[2] if len(args) > 2 else None)
    turned = tuple(-shift for shift in shifts) if isinstance(shifts, tuple | list) else -shifts
    return lambda x, *_, **__: function(x, turned, dims)
