"""Cache classes: an object that keeps keys and values, made of a class of the user's file."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import nn

from headwise.calls.roles import init_role
from headwise.calls.signature import EMPTY, parameters
from headwise.calls.source_hints import Reading

__all__ = ["filled", "given_by", "own_names", "stores"]

# what a method is called that gives a cache
GIVES = re.compile(
    r"^_?(new|init|make|create|build|alloc|allocate|empty|get|fresh|start).*(cache|buffer|state|memory|past|kv)"
)
# no sequence that is tried is longer
ROOM = 16
# what a size of a store is called, and which of the known sizes it is; the first that fits counts
SIZES = (
    (r"layer", "layers"),
    (r"batch|bsz|^b$|^bs$", "B"),
    (r"(kv|key).*head|n_kv|num_kv", "Hkv"),
    (r"head_?(dim|size|width)|^(d|hd|dh)$|d_?head|dim_?head|d_?k$|d_?v$", "d"),
    (r"head|^h$", "Hkv"),
    (r"window", "window"),
    (r"len|seq|max|pos|size|capacity|context|block|room|slots|tokens", "room"),
    (r"dim|width|model|embed|hidden", "D"),
)


def stores(name: str, annotation: Any, target: Any, namespace: Mapping[str, Any], reading: Reading) -> Iterator[type]:
    """The classes of which the store for an argument or attribute may be made, the likeliest first.

    name: what it is called. annotation: as it is written there.
    """
    owner = target if isinstance(target, type) else type(target)
    words = set(re.findall(r"[A-Za-z_]\w*", annotation if isinstance(annotation, str) else str(annotation)))
    attributes = reading.attributes.get(name, ())
    used = {"__getitem__" if attribute.startswith("[") else attribute for attribute in attributes}
    ranked: list[tuple[int, type]] = []
    for label, kind in namespace.items():
        if not isinstance(kind, type) or kind is owner or _is_library(kind):
            continue
        is_said = label in words
        has = set(dir(kind)) | _assigned(kind)
        is_like = bool(re.search(r"cache|kv|past|store|memory|state|slots", label, re.IGNORECASE))
        fits = used <= has and bool(used)
        if is_said or fits or (is_like and used <= has):
            ranked.append((-2 * is_said - fits - is_like, kind))
    yield from (kind for _, kind in sorted(ranked, key=lambda pair: pair[0]))
    cache = _of_transformers(owner, words)
    if cache is not None:
        yield cache


def _assigned(kind: type) -> set[str]:
    """The attributes that a constructor sets, as its code names them."""
    return {
        name
        for parent in kind.__mro__
        for function in vars(parent).values()
        if inspect.isfunction(function)
        for name in function.__code__.co_names
    }


def _is_library(kind: type) -> bool:
    return kind.__module__.split(".")[0] in (
        "torch",
        "builtins",
        "typing",
        "collections",
        "abc",
        "enum",
        "dataclasses",
        "transformers",
    )


def _of_transformers(owner: type, words: set[str]) -> type | None:
    """The cache of the library that a class is written for; None: it is written for none."""
    if not owner.__module__.startswith("transformers.") and not words & {"Cache", "DynamicCache"}:
        return None
    try:
        from transformers import DynamicCache
    except ImportError:
        return None
    return DynamicCache  # type: ignore[no-any-return]


def filled(function: Callable[..., Any], sizes: Mapping[str, int], dtype: Any) -> dict[str, Any] | None:
    """What a constructor or a method that makes room is given, by the names of its parameters; None: not known."""
    out: dict[str, Any] = {}
    for param in parameters(function):
        if param.name == "self":
            continue
        if re.search(r"dtype|type$", param.name):
            out[param.name] = dtype
        elif param.name == "device":
            out[param.name] = "cpu"
        elif param.default is not EMPTY and not isinstance(param.default, int):
            continue
        elif param.default is EMPTY or (param.default is not EMPTY and not isinstance(param.default, bool)):
            size = _size(param.name, sizes)
            if size is None and param.default is EMPTY:
                return None
            if size is not None:
                out[param.name] = size
    return out


def given_by(built: nn.Module, sizes: Mapping[str, int], dtype: Any) -> Iterator[Callable[[], Any]]:
    """What gives a new cache, by the methods of a module whose names say so."""
    for name in own_names(built):
        method = getattr(built, name, None)
        if not GIVES.search(name) or not inspect.ismethod(method):
            continue
        arguments = filled(method, sizes, dtype)
        if arguments is None:
            continue
        give = functools.partial(method, **arguments)
        try:
            is_given = give() is not None
        except Exception:  # noqa: BLE001  a method of a person's may raise anything
            is_given = False
        if is_given:
            yield give


def own_names(built: Any) -> list[str]:
    """The names of what the person's own classes of a module define."""
    kinds = [kind for kind in type(built).__mro__ if kind not in nn.Module.__mro__]
    return list(dict.fromkeys(name for kind in kinds for name in vars(kind)))


def _size(name: str, sizes: Mapping[str, int]) -> int | None:
    heads = sizes.get("Hkv", sizes.get("H", 1))
    width = sizes.get("D", heads)
    sizes_by_key = {
        "layers": 1, "B": sizes.get("B", 1), "Hkv": heads, "room": ROOM, "D": width,
        "d": sizes.get("d", width // max(1, sizes.get("H", 1))),
        "window": next((size for symbol, size in sizes.items() if init_role(symbol) == "window"), ROOM),
    }  # fmt: skip
    return next((sizes_by_key[key] for pattern, key in SIZES if re.search(pattern, name.lower())), None)
