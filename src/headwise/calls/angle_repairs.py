"""Angle repairs: the width that an error asks of the angles of rotary positions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from headwise.calls.plan import Plan, evaluated
from headwise.calls.roles import call_role

__all__ = ["batched", "narrowed"]

# the share of a head that is turned
SHARES = (2, 4, 8)
ANGLED = frozenset({"cosine", "sine", "cosine_sine", "frequencies"})


def narrowed(plan: Plan, numbers: Sequence[int], sizes: Mapping[str, int]) -> Iterator[Plan]:
    """The plans whose angles are as wide as what they met."""
    for name, value in plan.call.items():
        if call_role(name) in ANGLED and isinstance(value, Mapping) and "polar" in str(value.get("_expr")):
            for need in dict.fromkeys(number for number in numbers if number > 1):
                for width in _made_of(need, sizes):
                    turned = {"_expr": f"torch.polar(torch.ones(L, {width}), torch.randn(L, {width}))"}
                    yield replace(plan, call={**plan.call, name: turned})
    angles = {name: value for name, value in plan.call.items() if call_role(name) in ANGLED}
    wide = {_width(value, sizes) for value in angles.values()} & set(numbers)
    for have in wide - {0}:
        for need in (number for number in dict.fromkeys(numbers) if number != have and number > 1):
            for width in _made_of(need, sizes):
                call = {name: _ending(value, width, have, sizes) for name, value in angles.items()}
                yield replace(plan, call={**plan.call, **call})


def _made_of(size: int, sizes: Mapping[str, int]) -> Iterator[str]:
    """What a width may be: one that the class is built with, a share of one, a number."""
    names = [name for name in sizes if name not in ("B", "L", "S", "H")]
    yield from (name for name in names if sizes[name] == size)
    yield from (f"{name}//{share}" for name in names for share in SHARES if sizes[name] // share == size)
    yield from (f"2*{name}" for name in names if 2 * sizes[name] == size)


def _ends(value: Any) -> list[list[str]]:
    """The shapes of angles."""
    if isinstance(value, Mapping):
        return [shape for shape in value.get("_tuple", []) if isinstance(shape, list)]
    return [value] if isinstance(value, list) else []


def _width(value: Any, sizes: Mapping[str, int]) -> int:
    return next((evaluated(shape[-1], sizes) for shape in _ends(value)), 0)


def _ending(value: Any, width: str, have: int, sizes: Mapping[str, int]) -> Any:
    """Angles of another width."""
    if not _ends(value) or _width(value, sizes) != have:
        return value
    shapes = [[*shape[:-1], width] for shape in _ends(value)]
    return {"_tuple": shapes} if isinstance(value, Mapping) else shapes[0]


def batched(plan: Plan) -> Iterator[Plan]:
    """The plan whose angles, as numbers of the plane, are each sample's own."""
    for name, value in plan.call.items():
        text = str(value.get("_expr")) if isinstance(value, Mapping) else ""
        if call_role(name) in ANGLED and "polar" in text and "(L," in text:
            yield replace(plan, call={**plan.call, name: {"_expr": text.replace("(L,", "(B, L,")}})
