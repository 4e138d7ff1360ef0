"""Packed weights: whether each part of weights that are kept in one parameter is used, and none twice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from headwise.dataflow import MarkedOp, Run, call_of, chain_of
from headwise.diagnosis.checks.head_layout import Side
from headwise.diagnosis.modules import parameter_at
from headwise.diagnosis.repair import Repair
from headwise.diagnosis.suspects import Suspect
from headwise.recording import Site
from headwise.source import bound_to

__all__ = ["shared_features", "shared_part"]


def shared_part(run: Run, projected: Mapping[str, tuple[MarkedOp, Tensor]]) -> list[Suspect]:
    """Two sides that are made with one part of a parameter, of which another part of that size has no use.

    projected: the projection of each side, and the weights that it took.
    """
    for a, b in (("q", "k"), ("k", "v"), ("q", "v")):
        if a not in projected or b not in projected:
            continue
        (first, one), (second, other) = projected[a], projected[b]
        is_same = one.data_ptr() == other.data_ptr() and one.shape == other.shape and one.stride() == other.stride()
        is_mended = any(op.site in run.stand_ins for op in (first, second))
        if not is_same or first is second or is_mended:
            continue
        name, owner = _owner(run, one)
        spare = None if owner is None else _spare(run, owner, one)
        if spare is None:
            continue
        later = max((first, second), key=lambda entry: entry.at)
        stand_ins, change = _with_part(later, name, one, spare)
        values = {"name": f"{a}, {b}", "near": name}
        return [Suspect("projection-shared", later.span, Repair(stand_ins, change=change), values=values)]
    return []


def shared_features(
    run: Run, sides_by_name: Mapping[str, Side], projections: Mapping[str, MarkedOp | None]
) -> list[Suspect]:
    """A side that is made of what one projection gives for another side, where as much of it goes nowhere.

    sides_by_name: the sides; projections: that of each, which may be one for all.
    """
    for a, b in (("q", "k"), ("k", "v"), ("q", "v")):
        entry = projections.get(a)
        if entry is None or projections.get(b) is not entry or not {a, b} <= sides_by_name.keys():
            continue
        mine, features = (set(torch.unique(sides_by_name[each].f).tolist()) for each in (a, b))
        every = set(range(entry.outputs[0].shape[-1]))
        used = {f for name, side in sides_by_name.items() if projections.get(name) is entry
                for f in torch.unique(side.f).tolist()}  # fmt: skip
        spare = every - used
        if mine != features or -1 in mine or len(spare) != len(mine) or not used <= every:
            continue
        step = min(spare) - min(mine)
        if {each + step for each in mine} != spare:
            continue
        if not _goes_nowhere(entry, spare):
            # a gate may be made of it
            continue
        # what lies between the two belongs to the first of the sides that it may be
        wrong = b if a != "q" or b != "k" or min(spare) > min(mine) else a
        return _apart_from(run, sides_by_name, entry, {"wrong": wrong, "right": a if wrong == b else b}, step)
    return []


def _goes_nowhere(entry: MarkedOp, features: set[int]) -> bool:
    """Whether no gradient comes back to the weights of some features of a projection, of a run with gradients."""
    count = entry.outputs[0].shape[-1]
    weights = [t for t, marks in zip(entry.tensors, entry.given, strict=True) if marks is None and t.ndim > 1]
    grads = [weight.grad if weight.is_leaf else None for weight in weights]
    if len(grads) != 1 or grads[0] is None or count not in grads[0].shape:
        return False
    rows = grads[0] if entry.last == "linear" else grads[0].transpose(0, 1)
    return rows.shape[0] == count and not bool(rows[sorted(features)].any())


def _apart_from(
    run: Run, sides_by_name: Mapping[str, Side], entry: MarkedOp, sides: Mapping[str, str], step: int
) -> list[Suspect]:
    """That one side is made of another's features, and the same with its own, so many further on."""
    wrong, right = (
        chain_of(run, sides_by_name[side].entry, sides_by_name[side].operand)
        for side in (sides["wrong"], sides["right"])
    )
    shared = {each.at for each in right}
    op = next((each for each in wrong if each.at > entry.at and each.at not in shared), None)
    span = sides_by_name[sides["wrong"]].entry.span if op is None else call_of(run, op)
    values = {"name": ", ".join(sorted(sides.values(), key="qkv".index)), "near": entry.span.source}
    stand_ins = {} if op is None else _moved_on([each for each in wrong if entry.at < each.at < op.at], entry, op, step)
    return [Suspect("projection-slice-shared", span, Repair(stand_ins), values=values, home=bound_to(span))]


def _moved_on(between: list[MarkedOp], entry: MarkedOp, op: MarkedOp, step: int) -> dict[Site, Callable[..., Any]]:
    """What makes a side of other features of its projection: what lies between is done to these again."""
    outputs: dict[str, Tensor] = {}

    def kept(*args: Any, **options: Any) -> Any:
        outputs["all"] = entry.function(*args, **options)
        return outputs["all"]

    def right(*args: Any, **options: Any) -> Any:
        value, number = outputs["all"].roll(-step, dims=-1), entry.outputs[0].number
        for between_op in (*between, op):
            if not any(t.number == number for t in between_op.inputs):
                continue
            if between_op is op:
                return op.function(value, *args[1:], **options)
            inputs = between_op.function(value, *between_op.args[1:], **between_op.options)
            wanted = next(
                later
                for later in (*between, op)
                if later.at > between_op.at and any(t.number in between_op.results for t in later.inputs)
            )
            numbers = [out.number for out in between_op.outputs]
            number = next(t.number for t in wanted.inputs if t.number in numbers)
            value = inputs if isinstance(inputs, Tensor) else inputs[numbers.index(number)]
        return op.function(*args, **options)

    return {entry.site: kept, op.site: right}


def _owner(run: Run, part: Tensor) -> tuple[str, Tensor | None]:
    """The parameter of which weights are a part, and its name."""
    target = run.target
    storage = part.untyped_storage().data_ptr()
    for name, parameter in target.named_parameters() if isinstance(target, nn.Module) else ():
        if (
            parameter.untyped_storage().data_ptr() == storage
            and parameter.numel() > part.numel()
            and parameter.is_contiguous()
        ):
            return name, parameter
    return "", None


def _spare(run: Run, owner: Tensor, part: Tensor) -> int | None:
    """Where a part as large as another begins that nothing computes with; None: there is none."""
    used = torch.zeros(owner.numel(), dtype=torch.bool)
    places = torch.arange(owner.numel())
    for entry in run.seen:
        if entry.joint is None:
            continue
        for tensor in entry.tensors:
            if tensor.untyped_storage().data_ptr() == owner.untyped_storage().data_ptr():
                covered = places.as_strided(
                    tensor.shape, tensor.stride(), tensor.storage_offset() - owner.storage_offset()
                )
                used[covered.flatten()] = True
    size = part.numel()
    starts = range(0, owner.numel() - size + 1, size)
    return next((start for start in starts if not bool(used[start : start + size].any())), None)


def _with_part(entry: MarkedOp, name: str, part: Tensor, start: int) -> tuple[dict[Site, Callable[..., Any]], Any]:
    """A product with another part of a parameter in place of its own."""
    kept: dict[str, Tensor] = {}
    function, shape, stride = entry.function, part.shape, part.stride()

    def right(*args: Any, **options: Any) -> Any:
        replacement = kept["owner"].as_strided(shape, stride, start + kept["owner"].storage_offset())
        arguments = [replacement if isinstance(argument, Tensor) and argument.shape == shape and at == 1 else argument
                 for at, argument in enumerate(args)]  # fmt: skip
        return function(*arguments, **options)

    def change(target: Any, _: dict[str, Any]) -> None:
        kept["owner"] = parameter_at(target, name)

    return {entry.site: right}, change
