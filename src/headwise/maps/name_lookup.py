"""Name lookup: one of several maps, by a part of its name."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from headwise.errors import ArgumentError

LONGEST_LIST = 8
# how a list shows the name of a model that computes attention itself
ITSELF = '"" (the model itself)'


class NoMapError(ArgumentError, KeyError):
    """There is no map under a name."""

    # a KeyError would show its sentence in quotes
    __str__ = Exception.__str__


def holding(names: Iterable[str], part: str) -> list[str]:
    """The names that hold a part by whole dotted parts; of several calls, name[0], name[1], ..., also without these."""
    return [name for name in names if holds(name, part) or holds(re.sub(r"\[\d+\]$", "", name), part)]


def holds(name: str, part: str) -> bool:
    """Whether a name holds a part by whole dotted parts: "layer.3" is not in "layer.31".

    >>> holds("encoder.layer.3.attention", "layer.3"), holds("encoder.layer.31", "layer.3")
    (True, False)
    """
    return f".{part}." in f".{name}."


def listed(names: Collection[str]) -> str:
    """The first few names between quotes, and how many more there are."""
    shown = ", ".join(f'"{name}"' if name else ITSELF for name in list(names)[:LONGEST_LIST])
    return shown + (f" and {len(names) - LONGEST_LIST} more" if len(names) > LONGEST_LIST else "")


def ambiguous(part: str, names: Collection[str]) -> ArgumentError:
    """The error of a part that several names hold."""
    return ArgumentError(f'"{part}" must name one map, but names {len(names)}: {listed(names)}')
