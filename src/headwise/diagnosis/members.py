"""Members: the modules and parameters of a target by their names, also where a method is called as a module is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch import nn

__all__ = ["module_at", "modules_in", "parameter_at"]

# lists in lists in lists
DEEPEST = 3


def module_at(target: nn.Module, path: str) -> nn.Module:
    """The module of a name. `get_submodule` takes an attribute of that name, which may be a method."""
    found: nn.Module = dict(target.named_modules(remove_duplicate=False))[path]
    return found


def parameter_at(target: nn.Module, name: str) -> nn.Parameter:
    """The parameter of a name."""
    return dict(target.named_parameters(remove_duplicate=False))[name]


def modules_in(value: Any, depth: int = 0) -> Iterator[nn.Module]:
    """The modules in what an attribute holds: itself, or what a list or a dictionary holds."""
    if isinstance(value, nn.Module):
        yield value
    elif depth < DEEPEST and isinstance(value, list | tuple | set | Mapping):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from modules_in(each, depth + 1)
