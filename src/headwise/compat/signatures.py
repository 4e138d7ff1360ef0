"""Which of several foreign signatures a call fits, and its arguments by name."""

from __future__ import annotations

from inspect import Parameter, Signature
from typing import Any

from headwise.compat.inputs import count
from headwise.errors import ArgumentError

__all__ = ["taken"]


def taken(
    name: str, given: tuple[Any, ...], named: dict[str, Any], signatures: tuple[tuple[str, ...], ...]
) -> dict[str, Any]:
    """The arguments by name, under the one signature that they fit; all but `bias` must be there."""
    for names in signatures:
        kind = Parameter.POSITIONAL_OR_KEYWORD
        fitting = [Parameter(each, kind, default=False if each == "bias" else Parameter.empty) for each in names]
        try:
            found = Signature(fitting).bind(*given, **named).arguments
        except TypeError:
            continue
        for each, size in found.items():
            if each not in ("dropout", "bias"):
                count(each, size)
        if not isinstance(found.get("bias", False), bool):
            raise ArgumentError(f"bias must be True or False; got bias={found['bias']!r}")
        return found
    listed = " or ".join(f"({', '.join(names)})" for names in signatures)
    by_name = f" and {', '.join(named)} by name" if named else ""
    raise ArgumentError(
        f"{name} takes {listed}, bias being optional, but {len(given)} arguments{by_name} came, which fit neither: "
        "name the sizes"
    )
