"""Documented ranks: whether a plan gives arguments the axes that words give them: as many, the batch where it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from headwise.calls.documented_axes import HEADS, INPUTS, SIDES, WIDTH, docstring_axes
from headwise.calls.plan import Plan
from headwise.calls.rank_repairs import axes_of
from headwise.calls.roles import call_role
from headwise.calls.shape_words import BATCH, BESIDE, SAID, docstrings, shapes_in

__all__ = ["SaidAxes", "documented_ranks", "is_degenerate", "is_otherwise", "masks_of_keys"]


def masks_of_keys(target: Any, names: Sequence[str]) -> set[str]:
    """The arguments that docstrings give the shape (batch, keys), so that they say nothing of the order of queries."""
    axes = docstring_axes(target, names)
    return {name for name, parts in axes.items() if len(parts) == len("BS") and parts[0].lower() in BATCH}


class SaidAxes(NamedTuple):
    """How many axes words give an argument, and which of them is the batch; -1: none is called so, or several."""

    rank: int
    batch: int


def documented_ranks(target: Any, names: Sequence[str]) -> dict[str, SaidAxes]:
    """How many axes docstrings give each argument that has more than one, where they are said to be its shape."""
    spoken = {**shapes_in(docstrings(target), names, BESIDE), **shapes_in(docstrings(target), names, SAID)}
    letters = BATCH | WIDTH | HEADS | SIDES.keys() | {"n", "l", "t", "s"}
    lower = {name: [part.lower() for part in parts] for name, parts in spoken.items()}
    return {
        name: SaidAxes(len(parts), _batch(parts))
        for name, parts in lower.items()
        if len(parts) > 1 and letters & {*parts}
    }


def _batch(parts: Sequence[str]) -> int:
    places = [at for at, part in enumerate(parts) if part in BATCH]
    return places[0] if len(places) == 1 else -1


def is_otherwise(plan: Plan, ranks: Mapping[str, SaidAxes]) -> bool:
    """Whether a plan gives an argument another number of axes than is documented, the batch another one, or leaves out
    documented inputs. Of a mask it is not asked: what is documented of one may be wrong.
    """
    if not plan.call:
        return False
    inputs = [name for name in ranks if call_role(name) in (*INPUTS, "encoding")]
    if any(name in plan.call and plan.call[name] is None for name in inputs):
        return True
    shapes = {
        name: value["_ids"] if isinstance(value, Mapping) else value
        for name, value in plan.call.items()
        if isinstance(value, list) or (isinstance(value, Mapping) and "_ids" in value)
    }
    if any(not _is_as_said(shapes[name], ranks[name]) for name in shapes.keys() & ranks.keys()):
        return True
    return any(name not in plan.call and call_role(name) in INPUTS for name in ranks)


def _is_as_said(shape: Sequence[Any], axes: SaidAxes) -> bool:
    return len(shape) == axes.rank and (axes.batch < 0 or "B" not in shape or shape[axes.batch] == "B")


def is_degenerate(plan: Plan, axes: Mapping[str, tuple[str, ...]]) -> bool:
    """Whether a plan gives one entry to an axis that is documented under a name."""
    mask = plan.call.get("_mask")
    shapes = {name: shape for name, value in plan.call.items() if (shape := axes_of(value)) is not None}
    if isinstance(mask, Mapping):
        shapes[str(mask["argument"])] = list(mask["shape"])
    return any(len(shape) == len(axes.get(name, ())) and "1" in map(str, shape) for name, shape in shapes.items())
