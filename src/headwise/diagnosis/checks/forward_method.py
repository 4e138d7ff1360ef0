"""Forward method: a class of modules without the method that nn.Module calls, and the one that was meant to be it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from difflib import SequenceMatcher
from types import FunctionType
from typing import Any

from torch import nn

from headwise.diagnosis.suspects import Suspect
from headwise.source import Span
from headwise.wording import say

__all__ = ["forward_suspects", "no_forward"]

FORWARD = "forward"
# as alike as `forword` and `foward`, and not as `forward_step` or `for_each`
ALIKE = 0.8


def forward_suspects(target: Any) -> list[Suspect]:
    """The method of a class of modules without forward whose name is a misspelt forward; none where no one is."""
    if not _lacks_forward(target):
        return []
    likest = max(_methods(target), key=lambda each: _likeness(each.__name__), default=None)
    if likest is None or _likeness(likest.__name__) < ALIKE:
        return []
    code, lines = likest.__code__, inspect.getsourcelines(likest)[0]
    # below its decorators
    below = next((at for at, text in enumerate(lines) if f"def {likest.__name__}" in text), 0)
    span = Span(code.co_filename, code.co_qualname, code.co_firstlineno + below)
    name = _kind(target).__name__
    said = {"name": name, "was": likest.__name__, "near": FORWARD, "how": "raised_laws"}
    error = f'NotImplementedError: Module [{name}] is missing the required "forward" function'
    return [Suspect("forward-misnamed", span, said=said, proved=True, evidence=error)]


def no_forward(target: Any, lang: str) -> str:
    """That a class of modules has no forward, and which methods it has; "": it has one, or is none."""
    if not _lacks_forward(target):
        return ""
    names = ", ".join(each.__name__ for each in _methods(target) if not each.__name__.startswith("__"))
    return say("doctor.no_forward", lang=lang, name=_kind(target).__name__, said=names or "–")


def _lacks_forward(target: Any) -> bool:
    kind = _kind(target)
    return issubclass(kind, nn.Module) and kind.forward is nn.Module.forward and kind.__call__ is nn.Module.__call__


def _kind(target: Any) -> type:
    return target if isinstance(target, type) else type(target)


def _methods(target: Any) -> Iterator[FunctionType]:
    """The methods that the target's own classes define, those of the innermost first."""
    for kind in _kind(target).__mro__:
        if kind is nn.Module:
            return
        yield from (each for each in vars(kind).values() if isinstance(each, FunctionType))


def _likeness(name: str) -> float:
    """How much of a name, but for case and underscores around it, is that of forward; 1: all of it."""
    return SequenceMatcher(None, name.strip("_").lower(), FORWARD).ratio()
