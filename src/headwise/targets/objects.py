"""Objects: what is known of a class, a function or a module in memory: its name, its namespace and its files."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

__all__ = ["AtHand", "at_hand"]


class AtHand(NamedTuple):
    """What is known of an object by itself: what it is called, the names of its file, and which files are its own."""

    title: str
    namespace: Mapping[str, Any]
    files: Mapping[str, str]


def at_hand(target: Any) -> AtHand:
    """A class, a function, a module, or a partial of one, as the command line knows one by its file.

    files: what each is called: its name, with as many of its folders as tell it from the others.
    """
    while isinstance(target, functools.partial):
        target = target.func
    kind = target if isinstance(target, type) or not isinstance(target, nn.Module) else type(target)
    own = [Path(file) for file in _own_files(target)]
    files = {}
    for file in own:
        tails = (Path(*file.parts[-count:]) for count in range(1, len(file.parts) + 1))
        alone = (tail for tail in tails if sum(each.parts[-len(tail.parts) :] == tail.parts for each in own) == 1)
        files[str(file)] = str(next(alone, file))
    namespace = getattr(inspect.getmodule(kind), "__dict__", {})
    return AtHand(getattr(kind, "__qualname__", repr(kind)), namespace, files)


def _own_files(target: Any) -> tuple[str, ...]:
    """The files in which a class and its parents, or a function, were written, but for torch's."""
    if isinstance(target, type | nn.Module):
        kinds = (target if isinstance(target, type) else type(target)).__mro__
        codes = [
            each.__code__
            for kind in kinds
            if kind is not object and not kind.__module__.startswith("torch.")
            for each in vars(kind).values()
            if inspect.isfunction(each)
        ]
    else:
        code = getattr(inspect.unwrap(target), "__code__", None)
        codes = [] if code is None else [code]
    return tuple(dict.fromkeys(code.co_filename for code in codes))
