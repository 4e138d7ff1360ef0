"""Hints: a call in the words of another library is answered with ours."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, ParamSpec, TypeVar

from headwise.errors import ArgumentError

__all__ = ["CallError", "hinted"]

# how much of a name must be that of another to be a misspelling of it; 1: all
NEAR = 0.75
P = ParamSpec("P")
R = TypeVar("R")
# what to give in the place of an argument, which may hang on its value
Hint = str | Callable[[object], str]


class CallError(ArgumentError, TypeError):
    """A call has an argument that the function does not take."""


def hinted(words: Mapping[str, Hint], *, by_name: Hint = "") -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A function whose TypeError for an argument that it does not take becomes a sentence with what to give.

    words: names that other libraries use -> what to give in their place. by_name: what to say where more arguments
    came by their place than it takes that way, "": Python's own words. A hint that hangs on what came is a function of
    it: of the argument, or of the first of those by their place. The function keeps its signature, and a call
    that fits costs one call of Python more.

    >>> @hinted({"colour": "give color="})
    ... def paint(*, color: str) -> str:
    ...     return color
    >>> paint(colour="red")
    Traceback (most recent call last):
    headwise.wording.hints.CallError: paint takes no colour=: give color=
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return function(*args, **kwargs)
            except TypeError as error:
                _explain(function, args, kwargs, words, by_name, error)

        return call

    return decorate


def _explain(
    function: Callable[..., Any], args: Any, kwargs: Any, words: Mapping[str, Hint], by_name: Hint, error: TypeError
) -> NoReturn:
    """Raise the sentence for what is wrong with the arguments, or the error again if nothing is."""
    taken = inspect.signature(function).parameters
    name = function.__qualname__.removesuffix(".__init__").removesuffix(".forward")
    unknown = [word for word in kwargs if word in words]
    if unknown:
        raise CallError(f"{name} takes no {unknown[0]}=: {_text(words[unknown[0]], kwargs[unknown[0]])}") from None
    misspelt = next((word for word in kwargs if word not in taken), None)
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in taken.values())
    if misspelt is not None and not takes_any:
        named = [each.name for each in taken.values() if each.kind in (each.KEYWORD_ONLY, each.POSITIONAL_OR_KEYWORD)]
        near = difflib.get_close_matches(misspelt, [each for each in named if each != "self"], n=1, cutoff=NEAR)
        if near:
            raise CallError(f"{name} takes no {misspelt}=: did you mean {near[0]}=?") from None
    places = sum(parameter.kind is parameter.POSITIONAL_OR_KEYWORD for parameter in taken.values())
    if by_name and len(args) > places:
        raise CallError(_text(by_name, args[places])) from None
    raise error


def _text(hint: Hint, argument: object) -> str:
    return hint if isinstance(hint, str) else hint(argument)
