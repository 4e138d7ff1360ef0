"""Signature: what is called once a target is built, and what it takes."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

__all__ = ["EMPTY", "callee", "parameters", "starred", "whole"]

EMPTY = inspect.Parameter.empty


def callee(target: Any) -> Any:
    """The forward of a module or of a class of modules, the call of any other object, a function itself."""
    if isinstance(target, type):
        return _unbound(
            target.forward if issubclass(target, nn.Module) else vars(target).get("__call__", target.__call__)
        )
    return target.forward if isinstance(target, nn.Module) else target


def parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """The parameters that can be given by name or place; none where a signature is not to be had.

    A constructor that hands on whatever it is given takes what the class above takes.
    """
    try:
        every = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return []
    own = [each for each in every if each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)]
    if isinstance(function, type) and len(every) - len(own) == len(("*args", "**kwargs")):
        maker = next((at for at, each in enumerate(function.__mro__) if "__init__" in vars(each)), 0)
        above = next(iter(function.__mro__[maker + 1 :]), object)
        if above not in (object, nn.Module):
            names = {each.name for each in own}
            own += [each for each in parameters(above) if each.name not in names]
    return own


def whole(target: Any, init: Mapping[str, Any] | None) -> tuple[Any, Mapping[str, Any] | None]:
    """The class that a `functools.partial` of a class is of, and what is given to it: what is said, then its own."""
    while isinstance(target, functools.partial) and isinstance(target.func, type):
        names = [each.name for each in parameters(target.func)]
        own = {**dict(zip(names, target.args, strict=False)), **target.keywords}
        if len(target.args) > len(names) or any(isinstance(each, Mapping | list) for each in own.values()):
            break
        target, init = target.func, {**own, **(init or {})}
    return target, init


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
