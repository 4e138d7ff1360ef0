"""torch.compile: compiled code runs as if nothing watched: neither compiled anew, nor skipped, nor refused."""

from __future__ import annotations

import functools
import re
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from types import FrameType, FunctionType
from typing import Any

import torch

from headwise.watching.patch_points import PatchPoint

__all__ = ["Compiled", "compiled_calls"]


class Compiled:
    """The compiled code that runs in the thread of one watch, and what to do when it begins and ends.

    begin: called with the name of the compiled function, "" where user code gives it none. compiling: called where that
    must be compiled first. end: called when it has run, and while it is interrupted by a function that is not compiled.
    """

    def __init__(self, begin: Callable[[str], None], compiling: Callable[[], None], end: Callable[[], None]) -> None:
        self._begin, self._compiling, self._end = begin, compiling, end
        self._thread = threading.get_ident()
        # who turned dynamo on, the outermost first
        self._on: list[FrameType] = []
        # who turned it off for a while, and who had turned it on
        self._interrupted: list[tuple[FrameType, FrameType]] = []

    def started(self, _: object) -> None:
        """Dynamo starts to compile."""
        if threading.get_ident() == self._thread and self._on:
            self._compiling()

    def turned_on(self, by: FrameType, name: str) -> None:
        """Dynamo has been turned on."""
        if threading.get_ident() != self._thread:
            return
        if self._interrupted and self._interrupted[-1][0] is by:
            self._on.append(self._interrupted.pop()[1])
        else:
            self._on.append(by)
        if len(self._on) == 1:
            self._begin(name)

    def turned_off(self, by: FrameType, *, was_on: bool) -> None:
        """Dynamo has been turned off; an error while it compiled turned it off before."""
        if threading.get_ident() != self._thread or not self._on:
            return
        place = next((n for n, frame in enumerate(self._on) if frame is by), None)
        if place is not None:
            del self._on[place:]
        elif was_on:
            self._interrupted.append((by, self._on.pop()))
        if not self._on:
            self._end()


def compiled_calls(stack: ExitStack, compiled: Compiled) -> None:
    """Report to `compiled` every compiled function that this process runs, until the stack ends.

    Dynamo turns itself on and off by a function of its own, just around what is compiled: a guard that fails for a
    function mode, or code that it cannot trace under one, comes after. Read from torch 2.13.
    """
    frames = torch._dynamo.eval_frame
    for name in ("set_eval_frame", "_maybe_set_eval_frame"):
        current = vars(frames).get(name)
        # a function of Python, if it is not ours, calls the other
        if current is None or (isinstance(current, FunctionType) and not hasattr(current, "patch_point")):
            continue
        point = PatchPoint.add(frames, name, compiled, _switched)
        stack.callback(point.remove, compiled)
    starts = torch._dynamo.callback.callback_handler.start_callbacks
    starts.append(compiled.started)
    # torch._dynamo.reset() forgets it
    stack.callback(lambda: starts.remove(compiled.started) if compiled.started in starts else None)


def _switched(point: PatchPoint) -> Callable[..., Any]:
    original = point.original

    def set_eval_frame(callback: Any) -> Any:
        # from here on nothing that is called is compiled
        before = original(None)
        by = sys._getframe(1)
        if callback is None:
            for compiled in reversed(point.listeners):
                compiled.turned_off(by, was_on=before is not None)
        elif before is None:
            function = by.f_locals.get("fn") if point.listeners else None
            name = _written_name(function)
            for compiled in point.listeners:
                compiled.turned_on(by, name)
        original(callback)
        return before

    # it runs while dynamo is on, which is not to compile it
    torch._dynamo.eval_frame.skip_code(set_eval_frame.__code__)
    return functools.update_wrapper(set_eval_frame, original)


def _written_name(function: Any) -> str:
    """The name of a function in user code; "" of what torch calls a module by."""
    name = str(getattr(function, "__name__", ""))
    is_torchs = str(getattr(function, "__module__", "")).partition(".")[0] == "torch"
    if is_torchs:
        outer, _, inner = str(getattr(function, "__qualname__", "")).partition(".<locals>.")
        return outer if inner else ""
    # what is left of a function after a break in its graph
    rest = re.fullmatch(r"torch_dynamo_resume_in_(.+)_at_\d+", name)
    if rest:
        return rest[1]
    return name if name.isidentifier() else ""
