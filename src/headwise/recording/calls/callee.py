"""Callee: what is called once a target is built, and what it takes."""

from __future__ import annotations

import inspect
from typing import Any

from torch import nn

__all__ = ["callee", "starred"]


def callee(target: Any) -> Any:
    """The forward of a module or of a class of modules, the call of any other object, a function itself."""
    if isinstance(target, type):
        return _unbound(
            target.forward if issubclass(target, nn.Module) else vars(target).get("__call__", target.__call__)
        )
    return target.forward if isinstance(target, nn.Module) else target


def starred(function: Any) -> list[inspect.Parameter]:
    """Stand-ins for the arguments of a call that takes `*args`: queries, keys and values, in that order."""
    try:
        every = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    if not any(each.kind is each.VAR_POSITIONAL for each in every):
        return []
    return [inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY) for name in ("q", "k", "v")]


def _unbound(function: Any) -> Any:
    """A method without its first parameter."""
    own = inspect.signature(function)

    class Bound:
        __signature__ = own.replace(parameters=list(own.parameters.values())[1:])

        def __call__(self) -> None: ...

    return Bound()
