"""Signature: what is called once a target is built, and what it takes."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from torch import nn

from headwise.calls.argument_use import arguments_of
from headwise.calls.forward_method import assigned_forward
from headwise.calls.keyword_arguments import keyword_arguments
from headwise.calls.opened_targets import opened

__all__ = ["EMPTY", "callee", "parameters", "starred", "whole"]

EMPTY = inspect.Parameter.empty


def callee(target: Any) -> Any:
    """The forward of a module or of a class of modules, the call of any other object, a function itself."""
    if isinstance(target, type):
        kind: Any = target
        if issubclass(target, nn.Module):
            return _unbound(kind, assigned_forward(target) or target.forward)
        return _unbound(kind, vars(target).get("__call__", target.__call__))
    return target.forward if isinstance(target, nn.Module) else target


def parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """The parameters that can be given by name or place; none where a signature is not to be had.

    A constructor that hands on whatever it is given takes what the class above takes; keys that it reads of its
    `**kwargs` are parameters too.
    """
    try:
        every = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return []
    named = [
        parameter for parameter in every if parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
    ]
    if not isinstance(function, type):
        return arguments_of([*named, *keyword_arguments(function)], _owner(function), function)
    if len(every) - len(named) == len(("*args", "**kwargs")):
        maker = next((at for at, each in enumerate(function.__mro__) if "__init__" in vars(each)), 0)
        above = next(iter(function.__mro__[maker + 1 :]), object)
        if above not in (object, nn.Module):
            names = {each.name for each in named}
            named += [parameter for parameter in parameters(above) if parameter.name not in names]
    names = {each.name for each in named}
    return [*named, *(argument for argument in keyword_arguments(function.__init__) if argument.name not in names)]  # type: ignore[misc]


def _owner(function: Any) -> Any:
    """The class of a method of a module; a function itself."""
    instance = getattr(function, "__self__", None)
    return type(instance) if isinstance(instance, nn.Module) else function


def whole(
    target: Any, init: Mapping[str, Any] | None, call: Mapping[str, Any] | None = None
) -> tuple[Any, Mapping[str, Any] | None]:
    """The class that a `functools.partial` of a class is of, and what is given to it: what is said, then its own. What
    takes records takes their parts (`opened`), unless `call` says what one of them is.
    """
    while isinstance(target, functools.partial) and isinstance(target.func, type):
        names = [parameter.name for parameter in parameters(target.func)]
        arguments = {**dict(zip(names, target.args, strict=False)), **target.keywords}
        if len(target.args) > len(names) or any(
            isinstance(argument, Mapping | list) for argument in arguments.values()
        ):
            break
        target, init = target.func, {**arguments, **(init or {})}
    return opened(target, call), init


def starred(function: Any) -> list[inspect.Parameter]:
    """Stand-ins for the arguments of a call that takes `*args`: queries, keys and values, in that order."""
    try:
        every = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    if not any(parameter.kind is parameter.VAR_POSITIONAL for parameter in every):
        return []
    return [inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY) for name in ("q", "k", "v")]


@lru_cache(maxsize=64)
def _unbound(kind: Any, function: Any) -> Any:
    """A method of a class without its first parameter."""
    signature = inspect.signature(function)
    every = list(signature.parameters.values())[1:]
    # what takes all other keywords stands last
    every[len(every) - 1 :] = [*keyword_arguments(function), *every[len(every) - 1 :]]
    every = arguments_of(every, kind, function)

    class Bound:
        __signature__ = signature.replace(parameters=every)

        def __call__(self) -> None: ...

    return Bound()
