"""Members: the modules and parameters of a target by their names, also where a method is called as a module is."""

from __future__ import annotations

from torch import nn

__all__ = ["module_at", "parameter_at"]


def module_at(target: nn.Module, path: str) -> nn.Module:
    """The module of a name. `get_submodule` takes an attribute of that name, which may be a method."""
    found: nn.Module = dict(target.named_modules(remove_duplicate=False))[path]
    return found


def parameter_at(target: nn.Module, name: str) -> nn.Parameter:
    """The parameter of a name."""
    return dict(target.named_parameters(remove_duplicate=False))[name]
