"""Mask forms: the masks that a call may take, the likeliest first."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from headwise.calls.argument_use import role_of
from headwise.calls.roles import call_role, is_mapping
from headwise.calls.source_hints import Reading

__all__ = ["declared_shapes", "is_switch", "mask_arguments", "masks"]

SHAPES: tuple[tuple[str, ...], ...] = (
    ("B", "1", "L", "S"), ("B", "L", "S"), ("L", "S"), ("B", "S"), ("B", "1", "1", "S"), ("B", "1", "S"),
    ("1", "1", "L", "S"), ("1", "L", "S"), ("B", "H", "L", "S"), ("B*H", "L", "S"), ("S",), ("B", "L"), ("L", "L"),
    ("H", "L", "S"), ("B*H", "1", "S"), ("S", "B"), ("B", "L", "S", "1"), ("B", "L", "1", "S"), ("B", "S", "1"),
    ("L", "S", "B"), ("L", "S", "1"), ("L", "S", "B", "1"),
)  # fmt: skip
# what nobody is asked for, and a person may declare
DECLARED: tuple[tuple[str, ...], ...] = (
    ("B", "H", "1", "S"), ("1", "H", "L", "S"), ("1", "H", "1", "S"), ("1", "1", "1", "S"), ("1", "S"), ("L", "1"),
)  # fmt: skip
LENGTHS: tuple[tuple[str, ...], ...] = (("B",), ("B", "L"))
PADDING = ("padding", "pad_mask", "key_mask", "context_mask", "memory_mask", "src_mask", "kv_mask", "seq_mask")


def mask_arguments(own: Sequence[inspect.Parameter], *, keys: str = "") -> list[str]:
    """The parameters that take a mask, a bias or lengths, those for keys and queries at once first.

    keys: the argument that holds keys of their own; what is called as it is comes before the others.
    """
    order = ("mask", "lengths", "bias", "adjacency")
    roles = {
        each.name: role_of(each)
        for each in own
        if role_of(each) in order and not (is_switch(each) or is_mapping(each.annotation) or _is_number(each))
    }
    found = [name for name, role in roles.items() if role != "adjacency" or name.lower().startswith("adj")]
    side = keys.partition("_")[0] if call_role(keys) == "key" else None
    return sorted(
        found,
        key=lambda name: (
            order.index(roles[name]), "padding" in name, name.partition("_")[0] != side, found.index(name),
        ),
    )  # fmt: skip


def is_switch(each: inspect.Parameter) -> bool:
    """Whether an argument is true or false, whatever it is called: `mask_future=True`."""
    return isinstance(each.default, bool) or str(each.annotation) in ("bool", "<class 'bool'>")


def _is_number(each: inspect.Parameter) -> bool:
    """Whether an argument is one number, whatever it is called: `seq_len=1`, `length: int`."""
    said = str(getattr(each.annotation, "__name__", each.annotation))
    is_said = re.search(r"\b(int|float)\b", said) is not None and re.search("Tensor|ist|uple", said) is None
    return is_said or isinstance(each.default, int | float)


def masks(name: str, reading: Reading, *, keys: str) -> Iterator[Mapping[str, Any]]:
    """What `_mask` may be for an argument. keys: the symbol of the number of keys."""
    role = call_role(name)
    if role == "lengths":
        yield from ({"argument": name, "means": "lengths", "shape": list(each)} for each in LENGTHS)
        return
    rank = reading.widened.get(name, 0)
    shapes = sorted(_ordered(SHAPES, name), key=lambda each: rank > 0 and len(each) != rank)
    own = reading.means.get(name) or reading.means.get("")
    said = own.means if own is not None else ("additive" if role == "bias" else "attend")
    for means in dict.fromkeys([said, *(["attend", "additive", "blocked"] if own is None else [])]):
        for kind in ("bool", "int", "float") if means != "additive" else ("float",):
            for shape in shapes:
                mask = {
                    "argument": name,
                    "means": means,
                    "shape": [keys if axis == "S" else axis for axis in shape],
                }
                yield mask if kind == "bool" or means == "additive" else {**mask, "dtype": kind}


def declared_shapes(name: str, means: str, *, keys: str) -> list[list[str]]:
    """The shapes that a declared mask of an argument may have, the likeliest first. keys: their symbol."""
    shapes = LENGTHS if means == "lengths" else _ordered((*SHAPES, *DECLARED), name)
    return [[keys if axis == "S" else axis for axis in each] for each in shapes]


def _ordered(shapes: Sequence[tuple[str, ...]], name: str) -> Sequence[tuple[str, ...]]:
    """The shapes, those of padding first where the argument is called so."""
    if not _is_padding(name):
        return shapes
    return sorted(shapes, key=lambda each: len(each) != len(("B", "S")) or each == ("L", "S"))


def _is_padding(name: str) -> bool:
    return any(each in name for each in PADDING)
