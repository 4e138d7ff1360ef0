"""Serialization: a call and its lse as tensors with names and a description in JSON, and back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

from torch import Tensor

from headwise.errors import ArgumentError, AttentionError, InputError
from headwise.maps.lse import check_lse
from headwise.masks import Mask, allowed, causal, documents, keys, lengths, prefix, window
from headwise.masks.coordinates import Grid
from headwise.ops.call import Call, Rules, checked

TENSORS = ("q", "k", "attn_bias", "sink", "weight")
NUMBERS = ("scale", "softcap")
# a mask that cannot be written, since a function makes it, is written as it answers, up to this size
MAX_MASK_BYTES = 1 << 30
# masks of masks deeper than this are written as they answer, and not read
DEEPEST = 100

# how each mask is made from its fields, by the public functions, which check them
MASKS: dict[str, Callable[[dict[str, Any]], Mask]] = {
    "Causal": lambda f: causal(),
    "Window": lambda f: window(before=f["before"], after=f["after"]),
    "Keys": lambda f: keys(f["keep"]),
    "Lengths": lambda f: lengths(f["n"]),
    "Documents": lambda f: documents(f["ids"], f["key_ids"]),
    "Prefix": lambda f: prefix(f["n"]),
    "PrefixEach": lambda f: prefix(f["n"]),
    "Allowed": lambda f: allowed(f["t"]),
    "And": lambda f: _mask(f["left"]) & _mask(f["right"]),
    "Or": lambda f: _mask(f["left"]) | _mask(f["right"]),
    "Not": lambda f: ~_mask(f["mask"]),
    "Placed": lambda f: _mask(f["mask"]).at(f["i"], f["j"], columns=f["columns"]),
}


class Shelf:
    """Tensors by name, each stored once however many maps share it."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self._names: dict[tuple[Any, ...], str] = {}

    def put(self, name: str, tensor: Tensor) -> dict[str, str]:
        """Store a tensor, under this name if it is not there already, and give what stands for it in JSON."""
        identity = (tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride(), str(tensor.device))
        stored = self._names.setdefault(identity, name)
        self.tensors.setdefault(stored, tensor)
        return {"tensor": stored}


def describe(name: str, call: Call, lse: Tensor | None, shelf: Shelf) -> dict[str, Any]:
    """A call and its lse as JSON, with their tensors on the shelf."""
    described: dict[str, Any] = {field: getattr(call, field) for field in NUMBERS}
    for field in TENSORS:
        tensor = getattr(call, field)
        described[field] = None if tensor is None else shelf.put(f"{name}.{field}", tensor)
    described["lse"] = None if lse is None else shelf.put(f"{name}.lse", lse)
    mask = call.mask if call.mask is None or _is_plain(call.mask) else _answered(call.mask, call)
    described["mask"] = None if mask is None else _described(mask, f"{name}.mask", shelf)
    return described


def restore(name: str, described: Any, tensors: dict[str, Tensor]) -> tuple[Call, Tensor | None]:
    """The call and lse that were described; InputError where they do not fit each other."""
    wanted = {*TENSORS, *NUMBERS, "lse", "mask"}
    if not isinstance(described, dict) or set(described) != wanted:
        raise InputError(f"map {name!r} must have {', '.join(sorted(wanted))}, and nothing else: save it again")
    fields = {field: _value(described[field], tensors, name) for field in wanted}
    q, k, lse = fields["q"], fields["k"], fields["lse"]
    for field in (*TENSORS, "lse"):
        is_needed = field in ("q", "k")
        if not isinstance(fields[field], Tensor) and (is_needed or fields[field] is not None):
            raise InputError(f"{field} of map {name!r} must be a tensor: save it again")
    for field in NUMBERS:
        if fields[field] is not None and type(fields[field]) not in (int, float):
            raise InputError(f"{field} of map {name!r} must be a number: save it again")
    rules: Rules = {"mask": fields["mask"], "attn_bias": fields["attn_bias"], "sink": fields["sink"],
                    "scale": fields["scale"], "softcap": fields["softcap"]}  # fmt: skip
    try:
        call = checked(q, k, k, weight=fields["weight"], **rules)
        if lse is not None:
            check_lse(lse, call)
    except AttentionError as error:
        raise InputError(f"map {name!r} does not fit together: {error}") from error
    return call, lse


def _is_plain(mask: Mask, depth: int = 0) -> bool:
    """Whether a mask is made of tensors and numbers only, and of not too many masks in one another."""
    parts = [value for f in fields(mask) if isinstance(value := getattr(mask, f.name), Mask)]
    return depth <= DEEPEST and type(mask).__name__ in MASKS and all(_is_plain(part, depth + 1) for part in parts)


def _answered(mask: Mask, call: Call) -> Mask:
    """A mask as the dense tensor that it answers with, refused where that is too large to write."""
    sizes = call.sizes
    asked = mask.allows(Grid.whole(sizes, call.q.device).part(slice(0, 1), slice(0, 1)))
    needed = asked.shape[0] * asked.shape[1] * sizes.Lq * sizes.Lk
    if needed > MAX_MASK_BYTES:
        raise ArgumentError(
            f"{mask!r} asks a function, which no file can hold, and its answers take {needed} bytes, more than "
            f"{MAX_MASK_BYTES}: say it by other masks, or save a part of the map"
        )
    return allowed(mask.allowed(sizes.Lq, sizes.Lk, batch=sizes.B, heads=sizes.H, device=call.q.device))


def _described(mask: Mask, name: str, shelf: Shelf) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for f in fields(mask):
        value = getattr(mask, f.name)
        if isinstance(value, Mask):
            value = _described(value, f"{name}.{f.name}", shelf)
        elif isinstance(value, Tensor):
            value = shelf.put(f"{name}.{f.name}", value)
        values[f.name] = value
    return {"mask": type(mask).__name__, "fields": values}


def _value(described: Any, tensors: dict[str, Tensor], name: str, depth: int = 0) -> Any:
    """A described number, tensor, mask or None."""
    if not isinstance(described, dict):
        return described
    if set(described) == {"tensor"}:
        tensor = tensors.get(described["tensor"]) if isinstance(described["tensor"], str) else None
        if tensor is None:
            raise InputError(f"map {name!r} names a tensor {described['tensor']!r} that its file lacks: save it again")
        return tensor
    kind, values = described.get("mask"), described.get("fields")
    if not isinstance(kind, str) or kind not in MASKS or not isinstance(values, dict):
        raise InputError(f"a mask of map {name!r} must be one of {', '.join(MASKS)}, and is {kind!r}: save it again")
    if depth > DEEPEST:
        raise InputError(f"a mask of map {name!r} is nested more than {DEEPEST} deep: save it again")
    try:
        return MASKS[kind]({field: _value(value, tensors, name, depth + 1) for field, value in values.items()})
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{kind} of map {name!r} lacks a field, or has one of another kind: save it again") from error
    except AttentionError as error:
        raise InputError(f"{kind} of map {name!r} cannot be made: {error}") from error


def _mask(value: Any) -> Mask:
    if not isinstance(value, Mask):
        raise InputError(f"a mask is joined of masks, but {type(value).__name__} came: save it again")
    return value
