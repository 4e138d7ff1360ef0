"""Sequences: the layers of a model by the maps of its calls, the steps of one growing sequence as one map."""

from __future__ import annotations

import re

from headwise.errors import ArgumentError
from headwise.maps import AttentionMap
from headwise.maps.files import LoadedMaps
from headwise.watching.joining import joined
from headwise.watching.record import Record
from headwise.watching.seen import Seen

__all__ = ["layers_of"]

# how a file names the calls of a module that ran several times, see Seen.save
NUMBERED = re.compile(r"(.*)\[\d+\]")


def layers_of(maps: Seen | LoadedMaps) -> list[tuple[str, AttentionMap]]:
    """Name and map of every layer in running order; of a module whose calls are steps of one sequence, one map.

    Calls that are no such steps, as of a module that serves as several layers, stay apart.
    """
    calls = maps.in_order()
    modules = [name for name, _ in calls]
    if isinstance(maps, LoadedMaps):
        modules = [numbered[1] if (numbered := NUMBERED.fullmatch(name)) else name for name in modules]
    steps: dict[str, list[AttentionMap]] = {}
    for module, (_, made) in zip(modules, calls, strict=True):
        steps.setdefault(module, []).append(made)
    whole = {module: _whole(maps, module, made) for module, made in steps.items()}
    layers: list[tuple[str, AttentionMap]] = []
    for module, (name, made) in zip(modules, calls, strict=True):
        sequence = whole[module]
        if sequence is None:
            layers.append((name, made))
        elif made is steps[module][0]:
            layers.append((module, sequence))
    return layers


def _whole(maps: Seen | LoadedMaps, module: str, steps: list[AttentionMap]) -> AttentionMap | None:
    """The map of the whole sequence whose steps these are; None: they are not."""
    if len(steps) == 1 or not _may_be_steps(steps):
        return None
    try:
        if isinstance(maps, Seen):
            return maps.joined(module)
        return maps.kept(module, lambda: joined(module, [_record(step) for step in steps]).map())
    except ArgumentError:
        return None


def _may_be_steps(steps: list[AttentionMap]) -> bool:
    """Whether calls of these sizes can be steps: of one query after the first, or of no more queries than keys."""
    rows = [step.shape[2] for step in steps]
    return all(count == 1 for count in rows[1:]) or sum(rows) <= steps[-1].shape[3]


def _record(step: AttentionMap) -> Record:
    call, lse = step.stored()
    return Record(call.q, call.k, call.mask, call.attn_bias, call.scale, call.softcap, call.sink, lse, call.weight)
