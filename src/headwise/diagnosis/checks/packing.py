"""Packing: whether each part of weights that are kept in one parameter is used, and none twice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from headwise.diagnosis.following.members import parameter_at
from headwise.diagnosis.following.replacing import Site, site_of
from headwise.diagnosis.following.running import Run
from headwise.diagnosis.following.shadow import Seen
from headwise.diagnosis.suspects import Suspect

__all__ = ["shared_part"]


def shared_part(run: Run, made: Mapping[str, tuple[Seen, Tensor]]) -> list[Suspect]:
    """Two sides that are made with one part of a parameter, of which another part of that size has no use.

    made: the projection of each side, and the weights that it took.
    """
    for a, b in (("q", "k"), ("k", "v"), ("q", "v")):
        if a not in made or b not in made:
            continue
        (first, one), (second, other) = made[a], made[b]
        is_same = one.data_ptr() == other.data_ptr() and one.shape == other.shape and one.stride() == other.stride()
        is_mended = any(site_of(each.operation) in run.stand_ins for each in (first, second))
        if not is_same or first is second or is_mended:
            continue
        name, owner = _owner(run, one)
        spare = None if owner is None else _spare(run, owner, one)
        if spare is None:
            continue
        later = max((first, second), key=lambda each: each.at)
        stand_ins, change = _with_part(later, name, one, spare)
        said = {"name": f"{a}, {b}", "near": name}
        return [Suspect("projection-shared", later.operation.span, stand_ins, said=said, change=change)]
    return []


def _owner(run: Run, part: Tensor) -> tuple[str, Tensor | None]:
    """The parameter of which weights are a part, and its name."""
    target = run.target
    storage = part.untyped_storage().data_ptr()
    for name, each in target.named_parameters() if isinstance(target, nn.Module) else ():
        if each.untyped_storage().data_ptr() == storage and each.numel() > part.numel() and each.is_contiguous():
            return name, each
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
                held = places.as_strided(
                    tensor.shape, tensor.stride(), tensor.storage_offset() - owner.storage_offset()
                )
                used[held.flatten()] = True
    size = part.numel()
    starts = range(0, owner.numel() - size + 1, size)
    return next((start for start in starts if not bool(used[start : start + size].any())), None)


def _with_part(entry: Seen, name: str, part: Tensor, start: int) -> tuple[dict[Site, Callable[..., Any]], Any]:
    """A product with another part of a parameter in place of its own."""
    kept: dict[str, Tensor] = {}
    function, shape, stride = entry.function, part.shape, part.stride()

    def right(*args: Any, **options: Any) -> Any:
        other = kept["owner"].as_strided(shape, stride, start + kept["owner"].storage_offset())
        given = [other if isinstance(each, Tensor) and each.shape == shape and at == 1 else each
                 for at, each in enumerate(args)]  # fmt: skip
        return function(*given, **options)

    def change(target: Any, _: dict[str, Any]) -> None:
        kept["owner"] = parameter_at(target, name)

    return {site_of(entry.operation): right}, change
