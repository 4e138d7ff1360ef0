"""Block: what is put around a running model, so that a session meets its calls of attention."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from torch import nn

from headwise.watching.function_mode import AttentionMode
from headwise.watching.hooks import attached
from headwise.watching.patches import Patches
from headwise.watching.session import Session
from headwise.watching.torch_compile import Compiled, compiled_calls

__all__ = ["watched_block"]


@contextmanager
def watched_block(model: nn.Module, session: Session) -> Iterator[None]:
    """A block in which `session` meets the calls of attention that `model` makes; nothing stays behind."""
    with ExitStack() as around:
        patches = Patches(session)
        around.callback(patches.remove)
        patches.install()
        hooks = around.enter_context(attached(model, session))

        def come_back() -> None:
            hooks.put_back()
            patches.come_back()

        compiled_calls(around, Compiled(patches.step_aside, hooks.take_off, come_back))
        around.enter_context(session.open(AttentionMode(session)))
        yield
