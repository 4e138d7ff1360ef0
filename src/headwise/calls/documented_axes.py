"""Documented axes: the shapes that docstrings give arguments, of which none may be called with one entry alone."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from typing import Any

from headwise.calls.plan import Plan

__all__ = ["documented_axes", "is_degenerate"]

# a shape in brackets on the line of an argument: two names or more
SHAPE = r"\b{name}\b[^()\[\]\n]{{0,24}}[(\[]([^()\[\]\n]+)[)\]]"
NAME = re.compile(r"[^\W\d]\w*")
FEWEST = 2


def documented_axes(target: Any, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The names of the axes of each argument whose shape the docstring of a class or of its forward gives."""
    kind = target if isinstance(target, type) or inspect.isfunction(target) else type(target)
    forward = vars(kind).get("forward") if isinstance(kind, type) else None
    text = "\n".join(each for each in (kind.__doc__, getattr(forward, "__doc__", None)) if isinstance(each, str))
    axes: dict[str, tuple[str, ...]] = {}
    for name in names:
        shapes = re.findall(SHAPE.format(name=re.escape(name)), text)
        parts = tuple(part.strip() for part in shapes[0].split(",")) if shapes else ()
        if len(parts) >= FEWEST and all(NAME.fullmatch(part) for part in parts):
            axes[name] = parts
    return axes


def is_degenerate(plan: Plan, axes: Mapping[str, tuple[str, ...]]) -> bool:
    """Whether a plan gives one entry to an axis that is documented under a name."""
    mask = plan.call.get("_mask")
    shapes = {name: value for name, value in plan.call.items() if isinstance(value, list)}
    if isinstance(mask, Mapping):
        shapes[str(mask["argument"])] = list(mask["shape"])
    return any(len(shape) == len(axes.get(name, ())) and "1" in map(str, shape) for name, shape in shapes.items())
