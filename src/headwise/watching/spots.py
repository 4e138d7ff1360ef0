"""Spots: functions of other libraries that are replaced while anyone watches: once, for all who do, in any thread."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

__all__ = ["Call", "Spot", "replaced"]

# a watch may be ended by the garbage collector, in the middle of the start of another
LOCK = threading.RLock()

Function = Callable[..., Any]


@dataclass(frozen=True)
class Call:
    """One call of a replaced function: what it was given, and what is to run."""

    original: Function
    run: Function
    args: tuple[Any, ...]
    options: dict[str, Any]

    def result(self) -> Any:
        """Run it."""
        return self.run(*self.args, **self.options)

    def given(self) -> dict[str, Any]:
        """Its arguments by name, with the defaults of those left out."""
        bound = inspect.signature(self.original).bind(*self.args, **self.options)
        bound.apply_defaults()
        return dict(bound.arguments)


Around = Callable[[Call], Any]


class Spot:
    """An attribute of a class or module that holds a function, and those who listen to it.

    The function is replaced for the first of them and put back after the last, so that they may begin and end in any
    order. One that somebody else has replaced since stays below theirs, and does nothing any more.
    """

    def __init__(self, owner: Any, name: str, make: Callable[[Spot], Function]) -> None:
        self.original: Function = vars(owner)[name]
        # never changed in place, as calls in other threads read it
        self.listeners: tuple[Any, ...] = ()
        self._owner, self._name = owner, name
        self.ours = make(self)
        setattr(self.ours, "spot", self)  # noqa: B010  mypy knows no attributes of functions
        setattr(owner, name, self.ours)

    @staticmethod
    def add(owner: Any, name: str, listener: Any, make: Callable[[Spot], Function]) -> Spot:
        """Let `listener` hear what is called there, by the function that `make` makes where there is none yet."""
        with LOCK:
            current = vars(owner)[name]
            spot = getattr(current, "spot", None)
            if not isinstance(spot, Spot) or spot.ours is not current:
                spot = Spot(owner, name, make)
            spot.listeners = (*spot.listeners, listener)
            return spot

    def remove(self, listener: Any) -> None:
        """Let `listener` go, and put the function back where it was the last."""
        with LOCK:
            self.listeners = tuple(each for each in self.listeners if each is not listener)
            if not self.listeners and vars(self._owner).get(self._name) is self.ours:
                setattr(self._owner, self._name, self.original)


def replaced(spot: Spot) -> Function:
    """A function that runs the one it replaces with every listener around it, each called with a Call."""
    original = spot.original

    @functools.wraps(original)
    def listened(*args: Any, **options: Any) -> Any:
        if torch.compiler.is_compiling():
            return original(*args, **options)
        run = original
        for listener in spot.listeners:
            run = functools.partial(_around, listener, original, run)
        return run(*args, **options)

    return listened


def _around(listener: Around, original: Function, run: Function, /, *args: Any, **options: Any) -> Any:
    return listener(Call(original, run, args, options))
