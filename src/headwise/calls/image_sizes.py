"""Image sizes: what the sizes of an image that comes in are called, read from what a constructor is given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headwise.calls.roles import init_role
from headwise.calls.signature import parameters

__all__ = ["image_sizes"]

CHANNELS = ("channels", "in_channels", "in_chans", "num_channels")


def image_sizes(target: Any, init: Mapping[str, Any]) -> dict[str, str]:
    """The height and the width ("image"), as two expressions, and the number of "channels", where they are known."""
    out: dict[str, str] = {}
    for name, value in init.items():
        if init_role(name) == "image" and isinstance(value, str):
            out["image"] = f"{name} {name}"
        elif init_role(name) == "image" and isinstance(value, Mapping) and "_tuple" in value:
            out["image"] = " ".join(map(str, value["_tuple"]))
        elif init_role(name) == "patch" and isinstance(value, str):
            out.setdefault("image", f"n*{value} n*{value}")
    for each in parameters(target) if isinstance(target, type) else []:
        if each.name in CHANNELS:
            out["channels"] = str(init.get(each.name, each.default))
    return out
