"""The sequence that is spread over ranks: what a layer asks of it, and which one is in force."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from headwise.errors import ArgumentError
from headwise.masks import Mask
from headwise.ops.shared_axis import SharedAxis

__all__ = ["SpreadSequence", "activate", "active_spread", "check_not_spread", "deactivate", "suspended"]


# what torch's functional.scaled_dot_product_attention is while nothing has replaced it, and who replaces it
SDPA = torch._C._nn.scaled_dot_product_attention
CONTEXT_PARALLEL = "torch.distributed.tensor.experimental._context_parallel"


class SpreadSequence(Protocol):
    """A sequence of `length` tokens whose ranks each hold some; `headwise.distributed.spread` makes one."""

    @property
    def length(self) -> int:
        """How many tokens the whole sequence has."""

    @property
    def queries(self) -> SpreadSequence:
        """The same for self-attention, to the keys of its own tokens."""

    @property
    def crossed(self) -> SpreadSequence:
        """The same for cross-attention; ArgumentError where it does not say whose keys those are."""

    def check_keys(self, count: int) -> None:
        """Raise ArgumentError where so many keys may be the query's own tokens."""

    def key_tokens(self, held: int) -> Tensor:
        """Which keys of the whole this rank holds, int64 (held,)."""

    def map_sizes(self, held: int) -> tuple[int, int]:
        """Lq and Lk of the whole map, where this rank holds so many keys."""

    @property
    def mask(self) -> Mask | None:
        """Of the whole sequence, for which it was spread; None: all tokens attend to all."""

    @property
    def positions(self) -> Tensor:
        """Where this rank's tokens sit in the whole sequence, int64 (L of this rank,)."""

    def attention(
        self, q: Tensor, k: Tensor, v: Tensor, *, first_head: int = 0, seed: Tensor | None = None, **rules: Any
    ) -> Tensor:
        """Attention of this rank's queries to the keys of all ranks, (B, Hq, L of this rank, Dv).

        q, k and v are this rank's, (B, H, L of this rank, D). rules: as `hw.attention` takes them, or with weight as
        `hw.additive_attention` does, and distance_bias, a `DistanceBias`; mask and biases are those of the whole map.
        first_head: which of all heads the first of q is, where
        others are computed elsewhere; seed: of dropout, which these have too, None: drawn from the generator.
        """

    def attend(self, q: Tensor, k: Tensor, v: Tensor, *, way: str, **rules: Any) -> Tensor:
        """The same, computed a way, unheard by a watch."""

    @property
    def rows(self) -> SharedAxis:
        """The queries of the whole sequence, as the rows of a map."""

    @property
    def columns(self) -> SharedAxis | None:
        """The keys of the whole sequence, as the columns of a map; None: every rank holds them whole."""

    def keys(self, k: Tensor, mask: Mask | None, *, heads: int) -> Tensor:
        """The keys of the whole sequence (B, Hk, Lk, D), from those of each rank; every rank must call it.

        A key that none of this rank's queries may attend to, in any of so many query heads, is not sent here, and 0.
        """


class Entered:
    """Whether any thread is inside of a `with spread:`: what a compiled program can read, and guards on."""

    def __init__(self) -> None:
        self.is_any = False
        self._count, self._lock = 0, threading.Lock()

    def add(self, number: int) -> None:
        with self._lock:
            self._count += number
            self.is_any = self._count > 0


_entered = Entered()
# a context variable, so that threads that are ranks each have their own
_active: ContextVar[SpreadSequence | None] = ContextVar("headwise.spread", default=None)


def active_spread() -> SpreadSequence | None:
    """The spread of the innermost `with spread:` around this call; None: there is none."""
    if not _entered.is_any:
        return None
    if torch.compiler.is_compiling():
        raise ArgumentError(
            "a compiled layer cannot read the `with spread:` around it: give it spread=, or compile the parts around "
            "attention"
        )
    return _active.get()


def check_not_spread(function: str) -> None:
    """Raise inside of `with spread:`, where a function of local tokens would leave out those of other ranks.

    And inside of torch's `context_parallel`, which puts a function of its own in the place of SDPA: what calls another
    kernel (softcap, sinks, masks) or rotates by position would be that of local tokens.
    """
    if F.scaled_dot_product_attention is not SDPA and _is_context_parallel(F.scaled_dot_product_attention):
        raise ArgumentError(
            f"{function} inside of torch's context_parallel would take this rank's tokens for the whole sequence: "
            "leave that `with`, and give the layer spread=hw.distributed.spread(length, mesh, mask=mask)"
        )
    spread = active_spread()
    if spread is not None:
        raise ArgumentError(
            f"{function} inside of `with spread:` would attend to this rank's {len(spread.positions)} tokens alone, of "
            f"{spread.length}: call hw.MultiHeadAttention or hw.distributed.attention, or leave the `with` first"
        )


def _is_context_parallel(function: object) -> bool:
    """Whether torch's context_parallel has made this function; the module says so, since its names are private."""
    return str(getattr(function, "__module__", "")).startswith(CONTEXT_PARALLEL)


def activate(spread: SpreadSequence) -> Token[SpreadSequence | None]:
    """Put a spread in force, as `with spread:` does on entering; the token is for `deactivate`."""
    _entered.add(1)
    return _active.set(spread)


def deactivate(token: Token[SpreadSequence | None]) -> None:
    """Put the spread in force again that was before `activate` gave this token."""
    _active.reset(token)
    _entered.add(-1)


@contextmanager
def suspended() -> Iterator[None]:
    """Let functions run on what a rank holds, as a spread's own attention does."""
    if torch.compiler.is_compiling():
        # a program compiled inside of `with spread:` is refused by active_spread
        yield
        return
    token = _active.set(None)
    try:
        yield
    finally:
        _active.reset(token)
