"""Layouts: the orders in which the axes of an input may come."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "ALONE", "CHANNELS", "CONDITIONED", "GROUPED", "HEADS", "HEADS_LAST", "HEADS_SAME", "IMAGE", "IMAGE_LAST",
    "IMAGE_TO_TOKENS", "KEYS_SHARED", "KEYS_SHARED_HEADS", "KEYS_TRANSPOSED",
    "KEYS_TRANSPOSED_MERGED", "MERGED", "MERGED_ALONE", "MERGED_SAME", "ONE_QUERY", "ONE_STEP",
    "ONE_STEP_TURNED", "PACKED", "PROJECTED", "STACKED", "TURNED", "VECTOR", "VIDEO", "Family", "family",
]  # fmt: skip


@dataclass(frozen=True)
class Family:
    """The shapes of one layout. layout: the axes of a query, as `_layout` says them."""

    layout: str
    query: tuple[str, ...]
    key: tuple[str, ...]
    value: tuple[str, ...]


def family(layout: str, query: str, key: str = "", value: str = "") -> Family:
    """A layout of axes that are apart by blanks; keys are as queries, and values as keys, where they are not said."""
    return Family(layout, tuple(query.split()), tuple((key or query).split()), tuple((value or key or query).split()))


PACKED = family("BLD", "B L D", "B S D")
TURNED = family("LBD", "L B D", "S B D")
ALONE = family("LD", "L D", "S D")
HEADS = family("BHLd", "B H L d", "B H S d", "B H S dv")
HEADS_SAME = family("BHLd", "B H L d", "B H S d")
GROUPED = family("BHLd", "B H L d", "B Hkv S d")
HEADS_LAST = family("BLHd", "B L H d", "B S H d")
MERGED = family("BLd", "B L d", "B S d", "B S dv")
MERGED_SAME = family("BLd", "B L d", "B S d")
MERGED_ALONE = family("Ld", "L d", "S d", "S dv")
KEYS_TRANSPOSED = family("BHLd", "B H L d", "B H d S", "B H S dv")
KEYS_TRANSPOSED_MERGED = family("BLd", "B L d", "B d S", "B S dv")
KEYS_SHARED = family("BLD", "B L D", "S D")
KEYS_SHARED_HEADS = family("BHLd", "B H L d", "H S d", "H S dv")
# keys and values that whoever keeps them has projected
PROJECTED = family("BLD", "B L D", "B H S d")
IMAGE = family("BDhw", "B D h w", "B D h w")
IMAGE_TO_TOKENS = family("BDhw", "B D h w", "B S D")
IMAGE_LAST = family("BhwD", "B h w D", "B h w D")
CHANNELS = family("BDL", "B D L", "B D S")
STACKED = family("BNLD", "B N L D", "B N S D")
# one vector of each sample beside its tokens
CONDITIONED = family("BLD", "B L D", "B D")
ONE_STEP = family("BD", "B D", "B S D")
VECTOR = family("BD", "B D", "B D")
ONE_QUERY = family("B1D", "B 1 D", "B S D")
ONE_STEP_TURNED = family("BD", "B D", "S B D")
VIDEO = family("BDthw", "B D t h w", "B D t h w")
