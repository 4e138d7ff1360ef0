"""Built modules: what a module that is at hand tells of its sizes, and a copy of it that may be tried."""

from __future__ import annotations

import copy
from dataclasses import replace
from math import prod
from typing import Any

from torch import nn

from headwise.calls.plan import Named
from headwise.calls.roles import init_role
from headwise.calls.signature import parameters
from headwise.calls.symbols import LEGEND, LETTERS

__all__ = ["copied", "fixed_sizes", "own_lengths", "own_numbers"]

LONGEST_LENGTH = 300
# a module with more numbers than this is tried itself, not a copy of it
MOST_COPIED = 50_000_000


def copied(target: Any) -> Any:
    """What is tried: a copy of a module that is at hand, so that trying leaves no trace in it."""
    if isinstance(target, type) or not isinstance(target, nn.Module):
        return target
    if sum(parameter.numel() for parameter in target.parameters()) > MOST_COPIED:
        return target
    try:
        module = copy.deepcopy(target)
        module.eval()
    except (TypeError, RuntimeError, AttributeError):
        return target
    return module


def own_lengths(target: Any) -> tuple[int, ...]:
    """The lengths that a module that is at hand may insist on: its windows, patches and tables."""
    if isinstance(target, type) or not isinstance(target, nn.Module):
        return ()
    out = []
    for module in target.modules():
        for name, value in vars(module).items():
            role = init_role(name)
            sizes = value if isinstance(value, tuple | list) else (value,)
            if role in ("window", "length", "image") and all(type(size) is int for size in sizes):
                out += [prod(sizes), prod(sizes) ** 2] if len(sizes) == 1 else [prod(sizes)]
    return tuple(dict.fromkeys(size for size in out if 1 < size < LONGEST_LENGTH))


def fixed_sizes(target: Any) -> dict[str, Named]:
    """The sizes of a module that is at hand, by the names of its attributes."""
    if isinstance(target, type) or not isinstance(target, nn.Module):
        return {}
    out: dict[str, Named] = {}
    for name, value in vars(target).items():
        letter = LETTERS.get(init_role(name), "")
        if letter and isinstance(value, int) and not isinstance(value, bool) and letter not in out:
            out[letter] = replace(LEGEND[letter], said=name, fixed=value)
    if "D" not in out:
        first = next((module for module in target.modules() if isinstance(module, nn.Linear)), None)
        if first is not None:
            out["D"] = replace(LEGEND["D"], fixed=first.in_features)
    if "d" not in out and "H" in out and "D" in out:
        out["d"] = replace(LEGEND["d"], fixed=(out["D"].fixed or 0) // max(out["H"].fixed or 1, 1))
    return out


def own_numbers(target: Any) -> dict[str, int]:
    """The sizes that a module that is at hand keeps under the names by which its constructor takes them."""
    if isinstance(target, type) or not isinstance(target, nn.Module):
        return {}
    names = {parameter.name for parameter in parameters(type(target))}
    return {name: value for name, value in vars(target).items() if name in names and type(value) is int and value > 1}
