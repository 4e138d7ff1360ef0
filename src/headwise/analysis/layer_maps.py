"""Layer maps: the maps of a watched run as the layers of a model, checked for what reads them one after the other."""

from __future__ import annotations

from typing import Any

from headwise.errors import ArgumentError
from headwise.maps import AttentionMap
from headwise.maps.files import LoadedMaps
from headwise.watching import Seen
from headwise.watching.sequences import layers_of

__all__ = ["NamedMaps", "checked_run", "named_layers"]

NamedMaps = list[tuple[str, AttentionMap]]


def checked_run(reader: str, run: Any) -> Seen | LoadedMaps:
    """What `watch` or `load_maps` gave; ArgumentError where something else came."""
    if not isinstance(run, Seen | LoadedMaps):
        raise ArgumentError(
            f"{reader} goes through what watch or load_maps gives, but {type(run).__name__} came: give one of these"
        )
    return run


def named_layers(reader: str, run: Any) -> NamedMaps:
    """Name and map of every layer in running order, one at least, of a sample and a token at least."""
    named = layers_of(checked_run(reader, run))
    if not named:
        raise ArgumentError(
            f"{reader} needs the map of one layer at least, but seen is empty: run the model in the block"
        )
    for name, layer_map in named:
        if 0 in layer_map.shape:
            raise ArgumentError(
                f'{reader} needs a sample, a head, a query and a key at least, but "{name}" gave '
                f"{tuple(layer_map.shape)}: watch a run on something"
            )
    return named
