"""Sequences: the layers of a model by the maps of its calls, the steps of one growing sequence as one map."""

from __future__ import annotations

import re

from headwise.errors import ArgumentError
from headwise.maps import AttentionMap
from headwise.maps.files import LoadedMaps
from headwise.watching.joined_steps import joined
from headwise.watching.record import CallRecord
from headwise.watching.watched_maps import Seen

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
    for module, (_, call_map) in zip(modules, calls, strict=True):
        steps.setdefault(module, []).append(call_map)
    whole = {module: _whole(maps, module, call_map) for module, call_map in steps.items()}
    layers: list[tuple[str, AttentionMap]] = []
    for module, (name, call_map) in zip(modules, calls, strict=True):
        sequence = whole[module]
        if sequence is None:
            layers.append((name, call_map))
        elif call_map is steps[module][0]:
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


def _record(step: AttentionMap) -> CallRecord:
    call, lse = step.stored()
    return CallRecord(call.q, call.k, call.mask, call.attn_bias, call.scale, call.softcap, call.sink, lse, call.weight)
