"""Call lengths: the sizes of a call of the same target with fewer or more tokens, and another batch."""

from __future__ import annotations

from collections.abc import Mapping
from math import lcm

from headwise.calls.bound_symbols import free_of
from headwise.calls.plan import Plan
from headwise.calls.symbols import LEGEND, MORE, bases

__all__ = ["other_lengths"]

# the symbols of the batch, of tokens, of the sides of an image and of windows
COUNTED = ("B", "L", "S", *MORE)
# so many steps more
LONGER = 2


def other_lengths(plan: Plan, sizes: Mapping[str, int], way: str) -> dict[str, int]:
    """The sizes of a call with about half as many tokens, "shorter", or a few more, "longer"; what the target is built
    with stays as it is. The same sizes where nothing else may be.

    >>> symbols = (LEGEND["B"], LEGEND["L"], LEGEND["D"])
    >>> plan = Plan(None, "self", {"dim": "D"}, {"x": ["B", "L", "D"]}, symbols)
    >>> other_lengths(plan, {"B": 3, "L": 7, "D": 16}, "shorter")
    {'B': 2, 'L': 3, 'D': 16}
    """
    free, out = free_of(plan), dict(sizes)
    built = bases([*plan.init.values()], {symbol.name: symbol for symbol in plan.symbols})
    for name in COUNTED:
        if name not in free or name in built or name not in sizes:
            continue
        step = lcm(free[name].times, 1 + free[name].even)
        least = -(-max(1, free[name].least) // step) * step
        fewer = sizes[name] - 1 if name == "B" else sizes[name] // 2
        if way == "longer":
            out[name] = sizes[name] + step * (LONGER if name in LEGEND else 1)
        elif sizes[name] % step == 0:
            out[name] = min(sizes[name], max(least, fewer // step * step))
    return plan.bound(out)
