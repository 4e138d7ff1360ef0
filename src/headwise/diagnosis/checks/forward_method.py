"""Misnamed forward: the method of a class of modules without forward that was meant to be it."""

from __future__ import annotations

import inspect
from difflib import SequenceMatcher
from typing import Any

from headwise.calls import lacks_forward, methods_of
from headwise.diagnosis.suspects import Suspect
from headwise.source import Span

__all__ = ["forward_suspects"]

FORWARD = "forward"
# as alike as `forword` and `foward`, and not as `forward_step` or `for_each`
ALIKE = 0.8


def forward_suspects(target: Any) -> list[Suspect]:
    """The method of a class of modules without forward whose name is a misspelt forward; none where no one is."""
    if not lacks_forward(target):
        return []
    likest = max(methods_of(target), key=lambda each: _likeness(each.__name__), default=None)
    if likest is None or _likeness(likest.__name__) < ALIKE:
        return []
    code, lines = likest.__code__, inspect.getsourcelines(likest)[0]
    # below its decorators
    below = next((at for at, text in enumerate(lines) if f"def {likest.__name__}" in text), 0)
    span = Span(code.co_filename, code.co_qualname, code.co_firstlineno + below)
    name = (target if isinstance(target, type) else type(target)).__name__
    said = {"name": name, "was": likest.__name__, "near": FORWARD, "how": "raised_laws"}
    error = f'NotImplementedError: Module [{name}] is missing the required "forward" function'
    return [Suspect("forward-misnamed", span, said=said, proved=True, evidence=error)]


def _likeness(name: str) -> float:
    """How much of a name, but for case and underscores around it, is that of forward; 1: all of it."""
    return SequenceMatcher(None, name.strip("_").lower(), FORWARD).ratio()
