"""Intervene: changes the attention of a running model for the length of a block."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from headwise.errors import ArgumentError
from headwise.intervening.edits import Edits
from headwise.intervening.session import EditingSession
from headwise.watching import WatchedModules, editing, unwatchable, watched_block

__all__ = ["intervene"]


@contextmanager
def intervene(model: nn.Module) -> Iterator[Edits]:
    """Change the attention of `model` in a block: heads ablated, edges blocked, weights and outputs patched.

    It reaches what `hw.watch` reaches, and is left as it was: headwise layers, F.scaled_dot_product_attention wherever
    it is called, nn.MultiheadAttention and the encoder layers (which then run as written, not on their fast path),
    Hugging Face models (sdpa and eager, caches in generate), attention by hand. Only the heads and rows of an edit are
    computed again, in O(L) memory; without edits the output stays bit-equal. Gradients go through the edits.

    Edits of weights (`block`, `weights`, `temperature`) come first, then those of head outputs (`zero`, `mean`,
    `output`), each kind in the order in which it was asked for; they hold for every call until the block ends.
    Positions are those of a whole sequence: with a cache, a step goes on where the call before it ended. A `watch` in
    or around the block gives the changed weights, as scores in O(L²) memory.

    Runs that another thread begins are not changed; those that a run leaves to another thread are refused.

    Raises ArgumentError where an edit names no module or no head, where a call that it names cannot be changed, with
    the reason (compiled code, activation checkpoints, dropout of weights that change, ranks that share a call), and, at
    the end, where it met no call.

    >>> import torch, headwise as hw
    >>> attn, x = hw.MultiHeadAttention(8, 2), torch.randn(3, 5, 8)
    >>> with hw.watch(attn) as before:
    ...     out = attn(x)
    >>> with hw.intervene(attn) as edits:
    ...     _ = edits.find("").block(queries=4, keys=[0, 1])
    ...     with hw.watch(attn) as after:
    ...         changed = attn(x)
    >>> after[""][0, 0, 4, :2]
    tensor([0., 0.])
    >>> torch.allclose(changed[:, :4], out[:, :4], atol=1e-6)
    True
    """
    if not isinstance(model, nn.Module):
        raise ArgumentError(
            f"intervene needs a torch.nn.Module, but {type(model).__name__} came: give the model itself"
        )
    names = {module: name for name, module in model.named_modules()}
    closed = {names[module]: why for module in names if (why := unwatchable(module)) is not None}

    def refusal(name: str) -> str:
        return next((why for outer, why in closed.items() if outer in ("", name) or name.startswith(f"{outer}.")), "")

    edits = Edits([name for module, name in names.items() if not (name and _is_simple(module))], refusal)
    session = EditingSession(WatchedModules(names, frozenset(names), takes_functions=False), edits)
    with editing(session), watched_block(model, session):
        yield edits
    for target, change in edits.unmet():
        reasons = {name: why for name, why in session.refusals.reasons.items() if edits.of(name)}
        why = "; ".join(f'"{name}" {reason}' for name, reason in reasons.items())
        raise ArgumentError(
            f'{change.text} of "{target.part}" met no call of attention: '
            + (why or "the model did not run, or has none there, or none at these positions")
        )


def _is_simple(module: nn.Module) -> bool:
    """Whether a module is a layer of torch.nn without children, as nn.Linear, which computes no attention.

    Other modules of torch may run user code, as torch.fx.GraphModule, and so may a forward that an instance has.
    """
    if not type(module).__module__.startswith("torch.nn.modules.") or "forward" in vars(module):
        return False
    return next(module.children(), None) is None
