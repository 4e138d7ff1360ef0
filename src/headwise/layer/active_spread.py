"""The sequence that is spread over ranks: what a layer asks of it, and which one is in force."""

from __future__ import annotations

from contextvars import ContextVar, Token
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

__all__ = ["SpreadSequence", "activate", "active_spread", "deactivate"]


@runtime_checkable
class SpreadSequence(Protocol):
    """A sequence of `length` tokens whose ranks each hold some; `headwise.distributed.spread` makes one."""

    @property
    def length(self) -> int:
        """How many tokens the whole sequence has."""

    @property
    def positions(self) -> Tensor:
        """Where this rank's tokens sit in the whole sequence, int64 (L of this rank,)."""

    def attention(self, q: Tensor, k: Tensor, v: Tensor, **rules: Any) -> Tensor:
        """Attention of this rank's queries to the keys of all ranks, (B, Hq, L of this rank, Dv).

        q, k and v are this rank's, (B, H, L of this rank, D). rules: as `hw.attention` takes them; mask and attn_bias
        are those of the whole sequence, (length, length).
        """


# a context variable, so that threads that are ranks each have their own
_ACTIVE: ContextVar[SpreadSequence | None] = ContextVar("headwise.spread", default=None)


def active_spread() -> SpreadSequence | None:
    """The spread of the innermost `with spread:` around this call; None: there is none."""
    return _ACTIVE.get()


def activate(spread: SpreadSequence) -> Token[SpreadSequence | None]:
    """Put a spread in force, as `with spread:` does on entering; the token is for `deactivate`."""
    return _ACTIVE.set(spread)


def deactivate(token: Token[SpreadSequence | None]) -> None:
    """Put the spread in force again that was before `activate` gave this token."""
    _ACTIVE.reset(token)
