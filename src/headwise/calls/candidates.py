"""Candidates: the calls that a target's parameters suggest, the likeliest first."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import islice, product
from typing import Any

from headwise.calls.argument_use import role_of
from headwise.calls.fixed_arguments import ANGLES, FIXED
from headwise.calls.layouts import Family
from headwise.calls.mask_forms import is_switch, mask_arguments, masks, visible
from headwise.calls.rank_repairs import axes_of
from headwise.calls.roles import is_mapping
from headwise.calls.signature import EMPTY
from headwise.calls.source_hints import Reading

__all__ = ["Wanted", "calls", "extras", "wanted"]

# so many ways of filling what is no tensor of features
WAYS, MOST = 24, 8
# what two languages are called
SIDES = (("src", "source", "enc", "input"), ("tgt", "trg", "target", "dec", "output"))
# how the mask of an input is called after it
OWN_MASK = re.compile(r"_(?:(?:key_)?(?:padding|pad|attention|attn|valid)_)?mask$")
# what turns distances into places
SHIFTS = re.compile(r"rel\w*_?shift|as_strided|skew")
COUNTS = frozenset({
    "batch", "batch_size", "bsz", "seq_len", "window", "window_size", "stride", "block_size", "chunk_size", "groups",
})  # fmt: skip
LOOKED_AT = 4096
# queries, keys and values in one
PACKED = re.compile(r"q_?k_?v", re.IGNORECASE)


@dataclass(frozen=True)
class Wanted:
    """The parameters of a call by what they are for; those that are left out are in `rest`."""

    query: str
    key: str
    value: str
    is_ids: bool
    rest: Mapping[str, str]
    optional: frozenset[str]
    keys_are_ids: bool = False

    @property
    def is_triple(self) -> bool:
        """Whether queries, keys and values are handed over apart."""
        return bool(self.query and self.key and self.value)


def wanted(parameters: Sequence[inspect.Parameter]) -> Wanted:
    """What each parameter of a call is for, by its name and its place."""
    roles = {parameter.name: _role(parameter) for parameter in parameters}
    if "columns" in roles.values():
        # beside a width, h is a height
        roles |= {name: "rows" for name in roles if name in ("h", "H")}
    # a number of heads may vary, whatever it is by default
    optional = frozenset(
        parameter.name for parameter in parameters
        if parameter.default is not EMPTY and (roles[parameter.name] != "heads" or type(parameter.default) is not int)
    )  # fmt: skip
    needed = [parameter.name for parameter in parameters if parameter.name not in optional]
    taken: dict[str, str] = {}
    for role in ("query", "key", "value"):
        fitting = [name for name in roles if roles[name] == role]
        fitting.sort(key=lambda name: name in optional)
        taken[role] = fitting[0] if fitting else ""
    unknown = [name for name in needed if roles[name] == "" and name not in taken.values() and not _is_count(name)]
    ids = next((name for name in roles if roles[name] == "ids" and name in needed), "")
    if not taken["query"] or (taken["query"] in optional and (unknown or ids)):
        # x, hidden_states, inputs, or whatever comes first
        first = ids or next(iter(unknown), "") or next((name for name in needed if roles[name] == "key"), "")
        first = first or next((name for name in roles if roles[name] in ("", "ids")), "") or next(iter(needed), "")
        taken["query"] = first or taken["query"]
        unknown = [name for name in unknown if name != first]
        if taken["key"] == first:
            taken["key"] = next((name for name in roles if roles[name] == "key" and name != first), "")
    alike = [name for name in roles if name != taken["query"] and _last_word(name) == _last_word(taken["query"])]
    if len(alike) > 1:
        # one of several inputs of one kind, as of items that were bought, is no key of the others
        unknown = [name for name in unknown if name not in alike]
    if not taken["key"] and len(unknown) > 0 and not taken["value"]:
        taken["key"] = unknown.pop(0)
    rest = {name: roles[name] for name in roles if name not in taken.values()}
    is_ids = roles.get(taken["query"]) == "ids"
    return Wanted(taken["query"], taken["key"], taken["value"], is_ids, rest, optional)


def _role(parameter: inspect.Parameter) -> str:
    if isinstance(parameter.default, float):
        # a share, as of what is masked
        return "number"
    role = "mapping" if is_mapping(parameter.annotation) else "flag" if is_switch(parameter) else role_of(parameter)
    # whatever it is called, a whole number is no tensor
    is_whole = parameter.annotation in (int, "int") and parameter.default is EMPTY
    return "count" if is_whole and role in ("", "query", "key", "value") else role


def _is_count(name: str) -> bool:
    """Whether an argument is a number by its name."""
    return name.startswith(("n_", "num_", "nb_")) or name in COUNTS


def calls(
    parameters: Sequence[inspect.Parameter],
    roles: Wanted,
    family: Family,
    reading: Reading,
    *,
    is_cross: bool,
    sizes: Mapping[str, str],
    extras: Sequence[str] = (),
    said: Set[str] = frozenset(),
) -> Iterator[dict[str, Any]]:
    """The calls with inputs of one layout.

    is_cross: keys have a length of their own. sizes: what D and others are called here. extras: arguments that are
    given although they have a default. said: arguments whose shapes words give.
    """
    choices: dict[str, list[Any]] = {}
    tied: dict[str, str] = {}
    shapes = {roles.query: family.query, roles.key: family.key, roles.value: family.value}
    for parameter in parameters:
        name = parameter.name
        if name in shapes and name:
            is_left_out = name in roles.optional and name != roles.query and name not in extras
            if is_left_out and not is_cross and not roles.is_triple:
                continue
            shape = [sizes.get(axis, axis) for axis in shapes[name]]
            if PACKED.search(name) and "packed" in sizes:
                shape = [sizes["packed"] if axis == "D" else axis for axis in shapes[name]]
            shape = shape if is_cross else [("L" if axis == "S" else axis) for axis in shape]
            is_ids = (roles.is_ids and name == roles.query) or (roles.keys_are_ids and name == roles.key)
            if is_ids and not roles.is_ids:
                # words beside an image are in rows
                shape = ["B", "S" if is_cross else "L", "D"]
            choices[name] = [{"_ids": shape[:-1], "below": _vocabulary(name, sizes)} if is_ids else shape]
        elif name not in roles.optional or name in extras:
            role = roles.rest[name]
            if role == "sine" and "cosine" in roles.rest.values():
                tied[name] = next(cosine for cosine, own_role in roles.rest.items() if own_role == "cosine")
                continue
            role = "edge_features" if role == "pairs" and "edges" in roles.rest.values() else role
            choices[name] = list(_values(name, role, family, reading, sizes, keys="S" if is_cross else "L"))
            if roles.is_ids and roles.query in choices and _last_word(name) == _last_word(roles.query):
                # as the items that were bought, and those that might be
                choices[name].insert(0, choices[roles.query][0])
    places = product(*[range(min(len(choice), MOST)) for choice in choices.values()])
    ordered = sorted(islice(places, LOOKED_AT), key=sum)[:WAYS]
    ways = [dict(zip(choices, map(list.__getitem__, choices.values(), at), strict=True)) for at in ordered]
    paired = _with_own_masks(choices, roles)
    # of three inputs and more, each with its mask, no other way is likelier
    ways = [*paired, *ways] if sum(role == "mask" for role in roles.rest.values()) > 2 else [*ways, *paired]
    for way in ways:
        call = _with_masks(way, roles.key, family, parameters, said)
        if call is None:
            continue
        call.update({name: call[cosine] for name, cosine in tied.items()})
        yield {name: call[name] for name in [*(each.name for each in parameters), "_mask"] if name in call}


def _with_own_masks(choices: Mapping[str, Sequence[Any]], roles: Wanted) -> list[dict[str, Any]]:
    """The call with a mask for each of several inputs, which it is called after: `text, audio, text_mask, audio_mask`;
    none where not all masks are so.
    """
    masks = [name for name in choices if roles.rest.get(name) == "mask"]
    owners = {name: OWN_MASK.sub("", name) for name in masks}
    if len(masks) < 2 or not all(owner in choices for owner in owners.values()):
        return []
    meant = {*masks, *owners.values()}
    given: dict[str, Any] = {
        name: next((each for each in choice if each is not None or name not in meant), None)
        for name, choice in choices.items()
    }
    shapes = {name: axes_of(given[owner]) or [] for name, owner in owners.items()}
    if any(len(shape) < 2 for shape in shapes.values()):
        return []
    return [given | {name: {**given[name], "shape": shape[:2]} for name, shape in shapes.items()}]


def _with_masks(
    ways: Mapping[str, Any], keys: str, family: Family, parameters: Sequence[inspect.Parameter], said: Set[str]
) -> dict[str, Any] | None:
    """A call with one of its masks, the others of which hide nothing; None: words tell what each of several means."""
    among = [name for name, value in ways.items() if isinstance(value, Mapping) and "means" in value]
    if len(among) > 1 and set(among) <= said:
        return None
    main, call = _of_keys(among, keys, parameters), dict[str, Any]()
    for name, value in ways.items():
        if name not in among:
            call[name] = value
            continue
        shape = [axis if "L" in family.query or axis != "L" else "1" for axis in value["shape"]]
        if name == main:
            call["_mask"] = {"argument": name, **value, "shape": shape}
        else:
            call[name] = visible(["L" if axis == "S" and "L" not in shape else axis for axis in shape], value)
    return call


def _of_keys(names: Sequence[str], keys: str, parameters: Sequence[inspect.Parameter]) -> str:
    """Of several masks that which is called as the keys are, or the likeliest; "": there is none."""
    ordered = [name for name in mask_arguments(parameters, keys=keys) if name in names]
    called = [name for name in ordered if keys and name.partition("_")[0] == keys.partition("_")[0]]
    return next(iter((*called, *ordered, *names)), "")


def _last_word(name: str) -> str:
    return name.rpartition("_")[2]


def _vocabulary(name: str, sizes: Mapping[str, str]) -> str:
    """What bounds the token numbers of an argument: the vocabulary that is called as it is, or the first one."""
    side = next((each for each in SIDES if name.startswith(each)), ())
    names = [word for word in sizes.get("vocabularies", "").split() if word.startswith(side)]
    return names[0] if side and names else sizes.get("vocabulary", "11")


def _values(
    name: str, role: str, family: Family, reading: Reading, sizes: Mapping[str, str], *, keys: str
) -> Iterator[Any]:
    """What an argument that is no input may be given."""
    width = sizes.get("D", "D")
    shape = [sizes.get(axis, axis) for axis in family.query]
    if role in ("mask", "bias", "lengths"):
        yield from () if role == "lengths" else (None,)
        ways = masks(name, reading, keys=keys, role=role)
        yield from ({k: v for k, v in mask.items() if k != "argument"} for mask in ways)
    elif role in ("heads", "key_heads", "head_width", "width"):
        yield {"heads": "H", "key_heads": "Hkv", "head_width": "d", "width": width}[role]
    elif role in ("cache", "encoding"):
        # one for each distance
        far = [["2*L-1" if axis == "L" else axis for axis in shape], ["1", "2*L-1", width]]
        is_far = role == "encoding" and "L" in shape
        is_first = is_far and any(SHIFTS.search(word) for word in reading.words)
        # positions are of the queries, or of keys that have a length of their own
        of_keys = [[sizes.get(axis, axis) for axis in family.key]] if role == "encoding" and keys == "S" else []
        last = far if is_far and not is_first else ()
        yield from (*(far if is_first else ()), None, shape, *of_keys, ["L", width], *last)
    elif role == "frequencies" and name in reading.counts:
        yield from ({"_tuple": [each, each]} for each in (*ANGLES[5:], *ANGLES[4:5], *ANGLES[:4]))
    elif role in FIXED:
        yield from (
            [_renamed(axis, width) for axis in value] if isinstance(value, list) else value for value in FIXED[role]
        )
    elif _is_count(name):
        yield {"batch": "B", "batch_size": "B", "bsz": "B", "seq_len": "L"}.get(name, name)
    else:
        yield from (None, shape, 1, 0.5)


def _renamed(axis: str, width: str) -> str:
    return axis.replace("D", width)


EXTRA = ("cosine_sine", "cosine", "sine", "frequencies", "positions")


def extras(roles: Wanted) -> list[tuple[str, ...]]:
    """Which arguments with a default may be needed all the same: none, those for positions, or a mask."""
    positions = tuple(name for name, role in roles.rest.items() if role in EXTRA and name in roles.optional)
    masked = tuple(name for name, role in roles.rest.items() if role == "mask" and name in roles.optional)
    return [(), *([positions] if positions else []), *([masked] if masked else [])]
