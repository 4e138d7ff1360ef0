"""Key permutation: whether keys and values in another order, with the mask in that order too, give the same output."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from headwise.calls import call_role
from headwise.dataflow import MarkedOp, Run, attentions, operand_marks, place_of
from headwise.diagnosis.checks.projection_names import KEYS
from headwise.diagnosis.checks.weight_sums import TOLERANCE
from headwise.diagnosis.coverage import Missed, Tried
from headwise.diagnosis.distance import distance
from headwise.diagnosis.suspects import Suspect

__all__ = ["permuting_suspects"]


def permuting_suspects(run: Run, rerun: Callable[..., Run]) -> tuple[list[Suspect], Tried]:
    """Weights and values that no longer belong together when the keys come in another order; and what was tried.

    Where positions count, as with rotary positions, the output may differ, and that is told.
    """
    axes = _key_axes(run)
    if not axes or run.output is None:
        return [], Missed("doctor.missed.one_argument")

    def change(_: Any, options: dict[str, Any]) -> None:
        for name, axis in axes.items():
            value = options.get(name)
            if isinstance(value, Tensor):
                options[name] = value.roll(1, axis)

    second = rerun(more_change=change)
    if second.failure is not None or second.output is None or second.output.shape != run.output.shape:
        return [], Missed("doctor.missed.no_output")
    if _near(run.output, second.output):
        return [], True
    for a, b in zip(attentions(run), attentions(second), strict=False):
        if a.context.joint is None or b.context.joint is None or _near_value(a.context, b.context):
            continue
        if _is_rolled_alike(a.context, b.context):
            return [Suspect("key-value-misaligned", a.context.span)], True
    return [], "positions count"


def _key_axes(run: Run) -> dict[str, int]:
    """The arguments of keys and values, and the axis along which their tokens lie."""
    shapes = {name: shape for name, shape in run.plan.call.items() if isinstance(shape, list)}
    if any("S" in shape for shape in shapes.values()):
        return {name: value.index("S") for name, value in shapes.items() if "S" in value}
    # as many keys as queries, in arguments of their own
    out = {name: value.index("L") for name, value in shapes.items() if call_role(name) in KEYS and "L" in value}
    return out if len(out) < sum("L" in shape for shape in shapes.values()) else {}


def _near(a: Tensor, b: Tensor) -> bool:
    """Whether two results are no further apart than another order of the same sum makes them."""
    largest = float(a.detach().abs().nan_to_num(posinf=0.0).max()) if a.numel() else 0.0
    return distance(a, b) <= TOLERANCE * max(1.0, largest)


def _near_value(a: MarkedOp, b: MarkedOp) -> bool:
    x, y = a.outputs[0].value, b.outputs[0].value
    return x is not None and y is not None and _near(x, y)


def _is_rolled_alike(a: MarkedOp, b: MarkedOp) -> bool:
    """Whether both operands of a weighted sum moved with the keys, each by itself, though their product changed."""
    moved = 0
    for marks, x, y in zip(operand_marks(a), _values(a), _values(b), strict=True):
        if marks is None or x is None or y is None:
            return False
        arrays = [marks.arrays["t"]] if marks.kind == "token" else [marks.arrays["x"], marks.arrays["y"]]
        axes = [axis for axis in range(x.ndim) if any(_runs_along(array, axis) for array in arrays)]
        moved += any(_near(x.roll(1, axis), y) for axis in axes)
    return moved == 2


def _values(entry: MarkedOp) -> list[Tensor | None]:
    if entry.joint is None:
        return [None, None]
    out = []
    for operand in (entry.joint.a, entry.joint.b):
        place = next((at for at, each in enumerate(entry.tensors) if each is operand), None)
        out.append(None if place is None else entry.inputs[place].value)
    return out


def _runs_along(t: Tensor, axis: int) -> bool:
    places = place_of(t)
    return bool((places != places.select(axis, 0).unsqueeze(axis)).any())
