"""Candidates: the calls that a target's parameters suggest, the likeliest first."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product
from typing import Any

from torch import nn

from headwise.recording.calls.drafts import EMPTY
from headwise.recording.calls.reading import Reading
from headwise.recording.calls.roles import call_role

__all__ = ["Family", "Wanted", "calls", "families", "wanted"]

# so many ways of filling what is no tensor of features
WAYS = 24
OPTIONAL = ("mask", "bias", "lengths", "cache", "flag", "scale", "dropout", "start", "positions", "encoding")


@dataclass(frozen=True)
class Family:
    """The shapes of one layout. layout: the axes of a query, as `_layout` says them."""

    layout: str
    query: tuple[str, ...]
    key: tuple[str, ...]
    value: tuple[str, ...]


def _family(layout: str, query: str, key: str = "", value: str = "") -> Family:
    return Family(layout, tuple(query.split()), tuple((key or query).split()), tuple((value or key or query).split()))


PACKED = _family("BLD", "B L D", "B S D")
TURNED = _family("LBD", "L B D", "S B D")
ALONE = _family("LD", "L D", "S D")
HEADS = _family("BHLd", "B H L d", "B H S d", "B H S dv")
HEADS_SAME = _family("BHLd", "B H L d", "B H S d")
GROUPED = _family("BHLd", "B H L d", "B Hkv S d")
HEADS_LAST = _family("BLHd", "B L H d", "B S H d")
MERGED = _family("BLd", "B L d", "B S d", "B S dv")
MERGED_SAME = _family("BLd", "B L d", "B S d")
MERGED_ALONE = _family("Ld", "L d", "S d", "S dv")
IMAGE = _family("BDhw", "B D h w", "B D h w")
IMAGE_LAST = _family("BhwD", "B h w D", "B h w D")
CHANNELS = _family("BDL", "B D L", "B D S")
STACKED = _family("BNLD", "B N L D", "B N S D")
ONE_STEP = _family("BD", "B D", "B S D")
VECTOR = _family("BD", "B D", "B D")
VIDEO = _family("BDthw", "B D t h w", "B D t h w")


@dataclass(frozen=True)
class Wanted:
    """The parameters of a call by what they are for; those that are left out are in `rest`."""

    query: str
    key: str
    value: str
    is_ids: bool
    rest: Mapping[str, str]
    optional: frozenset[str]

    @property
    def is_triple(self) -> bool:
        """Whether queries, keys and values are handed over apart."""
        return bool(self.query and self.key and self.value)


def wanted(own: Sequence[inspect.Parameter]) -> Wanted:
    """What each parameter of a call is for, by its name and its place."""
    roles = {each.name: call_role(each.name) for each in own}
    optional = frozenset(each.name for each in own if each.default is not EMPTY)
    needed = [each.name for each in own if each.name not in optional]
    taken: dict[str, str] = {}
    for role in ("query", "key", "value"):
        fitting = [name for name in roles if roles[name] == role]
        fitting.sort(key=lambda name: name in optional)
        taken[role] = fitting[0] if fitting else ""
    unknown = [name for name in needed if roles[name] == "" and name not in taken.values()]
    ids = next((name for name in roles if roles[name] == "ids" and name in needed), "")
    if not taken["query"] or (taken["query"] in optional and (unknown or ids)):
        # x, hidden_states, inputs, or whatever comes first
        first = ids or next(iter(unknown), "") or next((name for name in needed if roles[name] == "key"), "")
        first = first or next((name for name in roles if roles[name] in ("", "ids")), "")
        taken["query"] = first or taken["query"]
        unknown = [name for name in unknown if name != first]
        if taken["key"] == first:
            taken["key"] = next((name for name in roles if roles[name] == "key" and name != first), "")
    if not taken["key"] and len(unknown) > 0 and not taken["value"]:
        taken["key"] = unknown.pop(0)
    rest = {name: roles[name] for name in roles if name not in taken.values()}
    is_ids = roles.get(taken["query"]) == "ids"
    return Wanted(taken["query"], taken["key"], taken["value"], is_ids, rest, optional)


def families(what: Wanted, reading: Reading, target: Any, built: Any) -> list[Family]:
    """The layouts that an input may have, the likeliest first."""
    weights = [each for each in built.modules() if any(True for _ in each.parameters(recurse=False))] if isinstance(
        built, nn.Module
    ) else []
    packed = [TURNED, PACKED] if _is_turned(what, reading, built) else [PACKED, TURNED]
    splits = [HEADS, HEADS_SAME, GROUPED, MERGED, MERGED_SAME, HEADS_LAST, MERGED_ALONE]
    images = [IMAGE, IMAGE_LAST]
    if what.is_triple and not weights and "heads" not in what.rest.values():
        order = [*splits, *packed, ALONE]
    elif any(isinstance(each, nn.Conv2d) for each in weights):
        order = [IMAGE, *packed, IMAGE_LAST, CHANNELS, ALONE]
    elif any(isinstance(each, nn.Conv1d) for each in weights):
        order = [*packed[:1], CHANNELS, *packed[1:], ALONE, *images]
    else:
        order = [*packed[:1], ALONE, IMAGE_LAST, IMAGE, *packed[1:], STACKED, CHANNELS, ONE_STEP, *splits]
    if any(isinstance(each, nn.Conv3d) for each in weights):
        order.insert(0, VIDEO)
    order += [each for each in (ONE_STEP, VECTOR) if each not in order]
    rank = reading.rank(what.query)
    return sorted(order, key=lambda each: len(each.query) != rank) if rank else order


def _is_turned(what: Wanted, reading: Reading, built: Any) -> bool:
    """Whether a length comes before the batch."""
    for name in (what.query, what.key, what.value):
        if reading.is_sequence_first(name):
            return True
        if reading.is_batch_first(name):
            return False
    return isinstance(built, nn.Module) and any(
        isinstance(each, nn.MultiheadAttention) and not each.batch_first for each in built.modules()
    )


def calls(
    own: Sequence[inspect.Parameter], what: Wanted, family: Family, *, is_cross: bool, sizes: Mapping[str, str]
) -> Iterator[dict[str, Any]]:
    """The calls with inputs of one layout.

    is_cross: keys have a length of their own. sizes: what D and others are called here.
    """
    given: dict[str, list[Any]] = {}
    shapes = {what.query: family.query, what.key: family.key, what.value: family.value}
    for each in own:
        name = each.name
        if name in shapes and name:
            if name in what.optional and name != what.query and not is_cross and not what.is_triple:
                continue
            shape = [sizes.get(axis, axis) for axis in shapes[name]]
            given[name] = [shape if is_cross else [("L" if axis == "S" else axis) for axis in shape]]
        elif name not in what.optional:
            given[name] = list(_values(name, what.rest[name], family, sizes, is_cross=is_cross))
    for values in islice(product(*given.values()), WAYS):
        call: dict[str, Any] = {}
        for name, value in zip(given, values, strict=True):
            if isinstance(value, Mapping) and "means" in value:
                call["_mask"] = {"argument": name, **value}
            else:
                call[name] = value
        yield call


def _values(name: str, role: str, family: Family, sizes: Mapping[str, str], *, is_cross: bool) -> Iterator[Any]:
    """What an argument that is no input may be given."""
    keys = "S" if is_cross else "L"
    width = sizes.get("D", "D")
    if role in ("mask", "bias", "lengths"):
        yield from (None,) if role != "lengths" else ()
        yield from ({"means": "lengths", "shape": ["B"]},) if role == "lengths" else ()
        means = "additive" if role == "bias" else "attend"
        for shape in (["B", "1", "L", keys], ["B", "L", keys], ["L", keys], ["B", keys]):
            yield {"means": means, "shape": shape}
        yield None
    elif role == "frequencies":
        yield {"_expr": "torch.polar(torch.ones(L, d // 2), torch.randn(L, d // 2))"}
        yield from (["L", "d"], ["L", "d//2"], None)
    elif role in ("cosine", "sine"):
        yield from (["L", "d"], ["B", "L", "d"], ["L", "d//2"], ["1", "1", "L", "d"], ["1", "L", "1", "d//2"])
    elif role == "cosine_sine":
        for shape in (["B", "L", "d"], ["L", "d"], ["L", "d//2"], ["1", "1", "L", "d"]):
            yield {"_tuple": [shape, shape]}
    elif role == "positions":
        yield from ({"_expr": "torch.arange(L)"}, {"_expr": "torch.arange(L).expand(B, L)"}, None)
    elif role == "adjacency":
        yield from ({"means": "attend", "shape": ["L", "L"]}, {"means": "attend", "shape": ["B", "L", "L"]})
    elif role == "weight":
        yield from ([width, width], ["H", width, "d"])
    elif role == "packed_weight":
        yield from ([width, f"3*{width}"], [f"3*{width}", width])
    elif role == "vector":
        yield [width]
    elif role in ("heads", "key_heads", "head_width", "width"):
        yield {"heads": "H", "key_heads": "Hkv", "head_width": "d", "width": width}[role]
    elif role in ("rows", "columns"):
        yield {"rows": "h", "columns": "w"}[role]
    elif role in ("cache", "encoding"):
        yield None
        yield [sizes.get(axis, axis) for axis in family.query]
    else:
        fixed: dict[str, tuple[Any, ...]] = {
            "start": (0,), "flag": (False,), "scale": (0.5, 1.0), "dropout": (0.0, None), "ids": ({"_ids": ["B", "L"]},),
        }  # fmt: skip
        shape = [sizes.get(axis, axis) for axis in family.query]
        yield from fixed.get(role, (None, shape, 1, 0.5))
