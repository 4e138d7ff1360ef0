"""Patch points: functions of other libraries, replaced while any watch is active, once for all, in any thread."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

__all__ = ["PatchedCall", "PatchPoint", "replaced"]

# a watch may be ended by the garbage collector, in the middle of the start of another
LOCK = threading.RLock()

Function = Callable[..., Any]


@dataclass(frozen=True)
class PatchedCall:
    """One call of a replaced function: its arguments, and what is to run."""

    original: Function
    run: Function
    args: tuple[Any, ...]
    options: dict[str, Any]

    def result(self) -> Any:
        """Run it."""
        return self.run(*self.args, **self.options)

    def arguments(self) -> dict[str, Any]:
        """The arguments by name, with the defaults of those left out."""
        bound = _signature(self.original).bind(*self.args, **self.options)
        bound.apply_defaults()
        return dict(bound.arguments)


@lru_cache(maxsize=64)
def _signature(function: Callable[..., Any]) -> inspect.Signature:
    """The signature of a function of torch's, of which there are few."""
    return inspect.signature(function)


Around = Callable[[PatchedCall], Any]


class PatchPoint:
    """An attribute of a class or module that holds a function, and the listeners to its calls.

    The function is replaced for the first of them and put back after the last, so that they may begin and end in any
    order. One that somebody else has replaced since stays below theirs, and does nothing any more.
    """

    def __init__(self, owner: Any, name: str, make: Callable[[PatchPoint], Function]) -> None:
        self.original: Function = vars(owner)[name]
        # never changed in place, as calls in other threads read it
        self.listeners: tuple[Any, ...] = ()
        self._owner, self._name = owner, name
        self.ours = make(self)
        setattr(self.ours, "patch_point", self)  # noqa: B010  mypy knows no attributes of functions
        setattr(owner, name, self.ours)

    @staticmethod
    def add(owner: Any, name: str, listener: Any, make: Callable[[PatchPoint], Function]) -> PatchPoint:
        """Call `listener` around each call there, by the function that `make` makes where there is none yet."""
        with LOCK:
            current = vars(owner)[name]
            point = getattr(current, "patch_point", None)
            if not isinstance(point, PatchPoint) or point.ours is not current:
                point = PatchPoint(owner, name, make)
            point.listeners = (*point.listeners, listener)
            return point

    def remove(self, listener: Any) -> None:
        """Remove `listener`, and put the function back after the last one."""
        with LOCK:
            self.listeners = tuple(kept for kept in self.listeners if kept is not listener)
            if not self.listeners and vars(self._owner).get(self._name) is self.ours:
                setattr(self._owner, self._name, self.original)
                # the replacing function holds this point
                self.ours = self.original


def replaced(point: PatchPoint) -> Function:
    """A function that runs the one it replaces with every listener around it, each called with a PatchedCall."""
    original = point.original

    @functools.wraps(original)
    def patched(*args: Any, **options: Any) -> Any:
        if torch.compiler.is_compiling():
            return original(*args, **options)
        run = original
        for listener in point.listeners:
            run = functools.partial(_around, listener, original, run)
        return run(*args, **options)

    return patched


def _around(listener: Around, original: Function, run: Function, /, *args: Any, **options: Any) -> Any:
    return listener(PatchedCall(original, run, args, options))
