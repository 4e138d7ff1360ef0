"""Which of several foreign signatures a call fits, and its arguments by name."""

from __future__ import annotations

from inspect import Parameter, Signature
from typing import Any

from headwise.compat.inputs import count
from headwise.errors import ArgumentError

__all__ = ["taken"]


def taken(
    name: str, args: tuple[Any, ...], named: dict[str, Any], signatures: tuple[tuple[str, ...], ...]
) -> dict[str, Any]:
    """The arguments by name, under the one signature that they fit; all but `bias` must be there."""
    for names in signatures:
        kind = Parameter.POSITIONAL_OR_KEYWORD
        fitting = [Parameter(p, kind, default=False if p == "bias" else Parameter.empty) for p in names]
        try:
            arguments = Signature(fitting).bind(*args, **named).arguments
        except TypeError:
            continue
        for parameter, size in arguments.items():
            if parameter not in ("dropout", "bias"):
                count(parameter, size)
        if not isinstance(arguments.get("bias", False), bool):
            raise ArgumentError(f"bias must be True or False; got bias={arguments['bias']!r}")
        return arguments
    listed = " or ".join(f"({', '.join(names)})" for names in signatures)
    by_name = f" and {', '.join(named)} by name" if named else ""
    raise ArgumentError(
        f"{name} takes {listed}, bias being optional, but {len(args)} arguments{by_name} came, which fit neither: "
        "name the sizes"
    )
