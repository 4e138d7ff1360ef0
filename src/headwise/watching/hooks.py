"""Hooks: which module is running, told by hooks on the watched model only; compiled modules run as if unwatched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn

from headwise.watching.chosen import hookable, is_compiled, unwatchable
from headwise.watching.ears import Ears
from headwise.watching.patches import Patches

__all__ = ["attached"]


@contextmanager
def attached(model: nn.Module, ears: Ears, patches: Patches) -> Iterator[None]:
    """A block in which `ears` know which module of the model is running; nothing stays behind."""
    closed = {module: why for module in ears.names if (why := unwatchable(module)) is not None}
    with ExitStack() as stack:
        for module in hookable(model, ears.taken, closed):
            _hook(stack, module, ears.names[module], ears)
        for module, why in closed.items():
            if not any(inner in ears.taken for inner in module.modules()):
                continue
            ears.seen._miss(ears.names[module], why)
            if is_compiled(module) and not isinstance(module, torch.jit.ScriptModule):
                _step_aside(stack, module, ears, patches)
        yield


def _hook(stack: ExitStack, module: nn.Module, name: str, ears: Ears) -> None:
    def enter(_: nn.Module, __: Any) -> None:
        if not torch.compiler.is_compiling():
            ears.enter(name)

    def leave(_: nn.Module, __: Any, ___: Any) -> None:
        if not torch.compiler.is_compiling():
            ears.leave(name)

    first = module.register_forward_pre_hook(enter)
    stack.callback(first.remove)
    last = module.register_forward_hook(leave, always_call=True)
    stack.callback(last.remove)


def _step_aside(stack: ExitStack, module: nn.Module, ears: Ears, patches: Patches) -> None:
    """Run a compiled module as if it were not watched, so that it is neither compiled anew nor skipped."""
    attribute = "forward" if module._compiled_call_impl is None else "_compiled_call_impl"
    was_own = attribute in vars(module)
    original: Callable[..., Any] = getattr(module, attribute)

    def aside(*args: Any, **options: Any) -> Any:
        if not ears.is_open:
            return original(*args, **options)
        with ears.deaf():
            patches.remove()
            try:
                return original(*args, **options)
            finally:
                patches.install()

    def restore() -> None:
        if was_own:
            setattr(module, attribute, original)
        else:
            delattr(module, attribute)

    setattr(module, attribute, aside)
    stack.callback(restore)
