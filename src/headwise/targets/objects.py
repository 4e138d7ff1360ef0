"""Objects: the name, namespace and files of a class, function or module in memory."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

__all__ = ["ObjectInfo", "describe_object"]


class ObjectInfo(NamedTuple):
    """An object in memory. title: its name; namespace: of its module; files: their display names."""

    title: str
    namespace: Mapping[str, Any]
    files: Mapping[str, str]


def describe_object(target: Any) -> ObjectInfo:
    """The name, namespace and files of a class, a function, a module, or a partial of one.

    files: the display name is the file name with as many folders as make it unique.
    """
    while isinstance(target, functools.partial):
        target = target.func
    kind = target if isinstance(target, type) or not isinstance(target, nn.Module) else type(target)
    paths = [Path(file) for file in _user_files(target)]
    files = {}
    for file in paths:
        tails = (Path(*file.parts[-count:]) for count in range(1, len(file.parts) + 1))
        alone = (tail for tail in tails if sum(path.parts[-len(tail.parts) :] == tail.parts for path in paths) == 1)
        files[str(file)] = str(next(alone, file))
    namespace = getattr(inspect.getmodule(kind), "__dict__", {})
    return ObjectInfo(getattr(kind, "__qualname__", repr(kind)), namespace, files)


def _user_files(target: Any) -> tuple[str, ...]:
    """The source files of a function, or of a class and its bases outside of torch."""
    if isinstance(target, type | nn.Module):
        kinds = (target if isinstance(target, type) else type(target)).__mro__
        codes = [
            value.__code__
            for kind in kinds
            if kind is not object and not kind.__module__.startswith("torch.")
            for value in vars(kind).values()
            if inspect.isfunction(value)
        ]
    else:
        code = getattr(inspect.unwrap(target), "__code__", None)
        codes = [] if code is None else [code]
    return tuple(dict.fromkeys(code.co_filename for code in codes))
