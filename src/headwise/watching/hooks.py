"""Hooks: which module is running, by hooks on the watched model only, which no copy of it carries."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from torch import nn
from torch.compiler import is_compiling
from torch.utils.hooks import RemovableHandle

from headwise.watching.session import Session
from headwise.watching.watched_modules import hookable, unwatchable

__all__ = ["attached"]

# takes anything, does nothing, and is written to a file without a word of headwise
NOTHING = nullcontext().__exit__


@contextmanager
def attached(model: nn.Module, session: Session) -> Iterator[Hooks]:
    """A block in which `session` follows which modules of the model run; nothing stays behind."""
    closed = {module: why for module in session.modules.names if (why := unwatchable(module)) is not None}
    for module, why in closed.items():
        if any(inner in session.modules.taken for inner in module.modules()):
            session.collector.miss(session.modules.names[module], why)
    hooks: list[Hook] = []
    try:
        for module in hookable(model, session.modules.taken, closed):
            hooks += (Entering(module, session), Leaving(module, session))
        yield Hooks(hooks)
    finally:
        for hook in reversed(hooks):
            hook.remove()


class Hooks:
    """All hooks of a watch, which may be off for a while: code that is compiled with them is compiled anew without."""

    def __init__(self, hooks: list[Hook]) -> None:
        self._hooks, self._are_off = hooks, False

    def take_off(self) -> None:
        """Take all off."""
        if not self._are_off:
            self._are_off = True
            for hook in self._hooks:
                hook.take_off()

    def put_back(self) -> None:
        """Put all back."""
        if self._are_off:
            self._are_off = False
            for hook in self._hooks:
                hook.put_back()


class Hook:
    """A hook that serves one module and one watch: on a copy of the module, and in a file, it is nothing."""

    # where a module keeps such hooks
    place = ""

    def __init__(self, module: nn.Module, session: Session) -> None:
        self.module: nn.Module | None = module
        self.session: Session | None = session
        self.copies: list[weakref.ref[nn.Module]] = []
        # numbered as torch numbers them, without its handles, which cost more than a call of the hook
        self.number = RemovableHandle.next_id
        RemovableHandle.next_id += 1
        self.put_back()

    def take_off(self) -> None:
        """Take it off its module for a while."""
        if self.module is not None:
            vars(self.module)[self.place].pop(self.number, None)

    def put_back(self) -> None:
        """Put it on its module, under its number."""
        if self.module is not None:
            vars(self.module)[self.place][self.number] = self

    def remove(self) -> None:
        """Take it off its module, and what stands for it off the copies."""
        self.take_off()
        for copied in self.copies:
            if (module := copied()) is not None and vars(module)[self.place].get(self.number) is NOTHING:
                del vars(module)[self.place][self.number]
                module._forward_hooks_always_called.pop(self.number, None)
        # compiled code may keep the hook, and a call in another thread may have it in hand
        self.module = self.session = None

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if isinstance(copied := memo.get(id(self.module)), nn.Module):
            self.copies.append(weakref.ref(copied))
        return NOTHING

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (nullcontext(), "__exit__")


class Entering(Hook):
    """Says that the module starts to run."""

    place = "_forward_pre_hooks"

    def __call__(self, module: nn.Module, *_: Any) -> None:
        if not is_compiling() and module is self.module and (session := self.session) is not None:
            session.enter(module, sys._getframe(1))


class Leaving(Hook):
    """Says that the module has run, or has failed."""

    place = "_forward_hooks"

    def take_off(self) -> None:
        super().take_off()
        if self.module is not None:
            self.module._forward_hooks_always_called.pop(self.number, None)

    def put_back(self) -> None:
        super().put_back()
        if self.module is not None:
            self.module._forward_hooks_always_called[self.number] = True

    def __call__(self, module: nn.Module, *_: Any) -> None:
        if not is_compiling() and module is self.module and (session := self.session) is not None:
            session.leave(module)
