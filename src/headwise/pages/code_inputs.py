"""Code inputs: what user code was called with, in words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from headwise.wording import say

__all__ = ["say_inputs"]

IMAGES = re.compile("pixel|image|img|picture")


def say_inputs(call: Mapping[str, Any], lang: str) -> str:
    """What code was called with, and what can be read from maps of that. call: as `trace` takes it."""
    kinds = {kind for name, value in call.items() if not name.startswith("_") for kind in _kinds(name, value)}
    inputs = "_".join(sorted(kinds)) or "other"
    return say("look.code.positions", lang=lang, inputs=say(f"look.code.inputs.{inputs}", lang=lang))


def _kinds(name: str, value: Any) -> Iterator[str]:
    """What an argument was given: embeddings, ids of tokens, or numbers of another kind."""
    if isinstance(value, list):
        yield "embeddings" if _is_of_embeddings(name, [str(axis) for axis in value]) else "numbers"
    if isinstance(value, Mapping) and "_ids" in value:
        yield "ids"
    if isinstance(value, Mapping) and "_tuple" in value:
        for part in value["_tuple"]:
            yield from _kinds(name, part)


def _is_of_embeddings(name: str, axes: list[str]) -> bool:
    """Whether an argument with these axes holds a vector for each token: no mask, no image, no lengths."""
    # what was called has loaded it
    from headwise.calls import call_role

    # (B, L, D) or (L, D); heads and images have more axes, a row of each sample fewer
    is_sequence = len(axes) == 3 or (len(axes) == 2 and axes[0] != "B")
    is_input = call_role(name) in ("", "query", "key", "value") and not IMAGES.search(name.lower())
    return is_sequence and is_input and axes[-1] != axes[-2]
