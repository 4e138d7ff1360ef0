"""Mask forms: the masks that a call may take, the likeliest first."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from headwise.calls.argument_use import role_of
from headwise.calls.roles import call_role, is_mapping
from headwise.calls.source_hints import Reading

__all__ = ["declared_shapes", "is_switch", "mask_arguments", "masks", "visible"]

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


def mask_arguments(params: Sequence[inspect.Parameter], *, keys: str = "") -> list[str]:
    """The parameters that take a mask, a bias or lengths, those for keys and queries at once first.

    keys: the argument that holds keys of their own; what is called as it is comes before the others.
    """
    order = ("mask", "lengths", "bias", "adjacency")
    roles = {
        param.name: role_of(param)
        for param in params
        if role_of(param) in order and not (is_switch(param) or is_mapping(param.annotation) or _is_number(param))
    }
    names = [name for name, role in roles.items() if role != "adjacency" or name.lower().startswith("adj")]
    side = keys.partition("_")[0] if call_role(keys) == "key" else None
    return sorted(
        names,
        key=lambda name: (
            order.index(roles[name]), "padding" in name, name.partition("_")[0] != side, names.index(name),
        ),
    )  # fmt: skip


def is_switch(param: inspect.Parameter) -> bool:
    """Whether an argument is true or false, whatever it is called: `mask_future=True`."""
    return isinstance(param.default, bool) or str(param.annotation) in ("bool", "<class 'bool'>")


def _is_number(param: inspect.Parameter) -> bool:
    """Whether an argument is one number, whatever it is called: `seq_len=1`, `length: int`."""
    annotation = str(getattr(param.annotation, "__name__", param.annotation))
    is_said = re.search(r"\b(int|float)\b", annotation) is not None and re.search("Tensor|ist|uple", annotation) is None
    return is_said or isinstance(param.default, int | float)


def masks(
    name: str, reading: Reading, *, keys: str, role: str = "", axes: Sequence[str] = ()
) -> Iterator[Mapping[str, Any]]:
    """What `_mask` may be for an argument. keys: the symbol of the number of keys. role: what it is for, "": what its
    name tells. axes: its shape, where words give it.
    """
    role = role or call_role(name)
    if role == "lengths":
        share = {"share": True} if name in reading.shares else {}
        yield from ({"argument": name, "means": "lengths", **share, "shape": list(each)} for each in LENGTHS)
        return
    rank = reading.widened.get(name, 0)
    shapes = sorted(_ordered(SHAPES, name), key=lambda shape: rank > 0 and len(shape) != rank)
    shapes = [tuple(axes), *shapes] if axes else shapes
    meaning = reading.means.get(name) or reading.means.get("")
    likeliest = meaning.means if meaning is not None else ("additive" if role == "bias" else "attend")
    for means in dict.fromkeys([likeliest, *(["attend", "additive", "blocked"] if meaning is None else [])]):
        for kind in ("bool", "int", "float") if means != "additive" else ("float",):
            for shape in shapes:
                mask = {
                    "argument": name,
                    "means": means,
                    "shape": [keys if axis == "S" else axis for axis in shape],
                }
                yield mask if kind == "bool" or means == "additive" else {**mask, "dtype": kind}


def visible(shape: Sequence[Any], way: Mapping[str, Any]) -> dict[str, str]:
    """A mask of a meaning that hides nothing, as an expression."""
    sizes = ", ".join(map(str, shape))
    value = "ones" if way["means"] == "attend" else "zeros"
    if way["means"] == "lengths":
        return {"_expr": f"torch.full(({sizes},), L)"}
    kind = way.get("dtype", "float" if way["means"] == "additive" else "bool")
    return {"_expr": f"torch.{value}({sizes}, dtype=torch.{kind})"}


def declared_shapes(name: str, means: str, *, keys: str) -> list[list[str]]:
    """The shapes that a declared mask of an argument may have, the likeliest first. keys: their symbol."""
    shapes = LENGTHS if means == "lengths" else _ordered((*SHAPES, *DECLARED), name)
    return [[keys if axis == "S" else axis for axis in shape] for shape in shapes]


def _ordered(shapes: Sequence[tuple[str, ...]], name: str) -> Sequence[tuple[str, ...]]:
    """The shapes, those of padding first where the argument is called so."""
    if not _is_padding(name):
        return shapes
    return sorted(shapes, key=lambda shape: len(shape) != len(("B", "S")) or shape == ("L", "S"))


def _is_padding(name: str) -> bool:
    return any(each in name for each in PADDING)
