"""Running modules: which modules of a watched model are running, and under whose name a call is recorded."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any, NamedTuple

from torch import nn

from headwise.watching.watched_modules import WatchedModules

__all__ = ["NO_MODULE", "Running", "RunningModules"]

NO_MODULE = "(no module)"


class Running(NamedTuple):
    """A module that runs, the frame that called its hook, and whether functions were intercepted around it."""

    module: Any
    frame: FrameType | None
    is_intercepted: bool


class RunningModules:
    """The stack of modules that run in the thread that watches, watched or not."""

    def __init__(self, modules: WatchedModules) -> None:
        self._modules = modules
        self._stack: list[Running] = []

    def push(self, module: nn.Module, frame: FrameType | None, *, is_intercepted: bool) -> None:
        """A module starts to run."""
        self._stack.append(Running(module, frame, is_intercepted))

    def pop(self, module: nn.Module) -> Running | None:
        """A module has run, with whatever was interrupted inside of it; None: it was not running."""
        if self._stack and self._stack[-1].module is module:
            return self._stack.pop()
        if not any(entry.module is module for entry in self._stack):
            return None
        while True:
            entry = self._stack.pop()
            if entry.module is module:
                return entry

    def clear(self) -> None:
        """No module runs any more."""
        self._stack.clear()

    @property
    def is_any(self) -> bool:
        """Whether one runs."""
        return bool(self._stack)

    def is_called_here(self) -> bool:
        """Whether a call of the whole model led here, in whichever thread this is."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            module = _called_on(frame)
            if module is not None and self._modules.names.get(module) == "":
                return True
            frame = frame.f_back
        return False

    def call_name(self) -> str | None:
        """The name under which a call made now is recorded; None: it is not."""
        # an interrupt that the block has caught ends modules without a call of their hooks
        while self._stack and not _is_running(self._stack[-1].frame):
            self._stack.pop()
        return self._innermost() if self._stack else self.caller()

    def caller(self) -> str | None:
        """The name of the innermost module of which a method is running, with a hook or without."""
        # a method called past the module's __call__ has no hook, but its frame shows whose it is
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            first = _called_on(frame)
            if first is not None:
                # torch.compile makes a module around another
                is_known = first in self._modules.names
                return self.name_of(first if is_known else first._modules.get("_orig_mod") or first)
            frame = frame.f_back
        return NO_MODULE if self._modules.takes_functions else None

    def name_of(self, module: nn.Module) -> str | None:
        """The name under which a call of this module is recorded; None: it is not."""
        if module in self._modules.names:
            return self._modules.name(module)
        return self._innermost() if self._stack else None

    def _innermost(self) -> str | None:
        return self._modules.name(self._stack[-1].module)


def _called_on(frame: FrameType) -> nn.Module | None:
    """The module of which a frame runs a method; None: of none."""
    code = frame.f_code
    first = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
    return first if isinstance(first, nn.Module) else None


def _is_running(frame: FrameType | None) -> bool:
    """Whether a frame is among those that led here."""
    current: FrameType | None = sys._getframe(1)
    while current is not None and current is not frame:
        current = current.f_back
    return current is frame
