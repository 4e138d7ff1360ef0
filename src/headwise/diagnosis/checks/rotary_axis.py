"""Rotary axis: along which axis the angles of a rotation change."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from headwise.dataflow import MarkedOp, place_of

__all__ = ["axis_of", "turned_otherwise"]

NEAR = 1e-6


def turned_otherwise(entries: Sequence[MarkedOp]) -> MarkedOp | None:
    """The first of some turns whose angles are the same for all places and change along another axis than that of the
    features, as along the heads.
    """
    if not _are_angles([t.value for entry in entries for t in entry.unmarked_inputs if t.value is not None]):
        return None
    for entry in entries:
        marks, value = entry.output_marks[0], next((t.value for t in entry.unmarked_inputs), None)
        if marks is None or marks.kind != "token" or value is None or value.ndim > len(marks.shape):
            return None
        places, angles = place_of(marks.arrays["t"]), value.expand(marks.shape)
        along = axis_of(places)
        axes = [axis for axis in range(angles.ndim - 1) if bool((angles.diff(dim=axis).abs() > NEAR).any())]
        if along is None or along in axes or not axes:
            return None
    return entries[0] if entries else None


def _are_angles(values: Sequence[Tensor]) -> bool:
    """Whether factors are cosines and sines of the same angles, or turns as complex numbers."""
    if any(value.is_complex() for value in values):
        return True
    pairs = ((a, b) for at, a in enumerate(values) for b in values[at + 1 :] if a.shape == b.shape)
    return any(bool(((a.double() ** 2 + b.double() ** 2 - 1).abs() < NEAR).all()) for a, b in pairs)


def axis_of(places: Tensor) -> int | None:
    """The one axis along which places differ; None: there is none, or more than one."""
    axes = [axis for axis in range(places.ndim) if bool((places.diff(dim=axis) != 0).any())]
    return axes[0] if len(axes) == 1 else None
