"""The table of ways, who would run a call that is spread over ranks, and one sentence on why the others would not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from headwise.distributed import gather, heads, queries, ring
from headwise.distributed.plan_cache import planned
from headwise.distributed.sequences import Sequences
from headwise.distributed.whole_call import WholeCall
from headwise.errors import ArgumentError, BackendError
from headwise.masks import Mask
from headwise.ops.call import Call


@dataclass(frozen=True)
class Way:
    """A way to compute a call whose tokens are spread over ranks.

    why_not: one sentence where it cannot compute the call exactly, else "". run: this rank's outputs. sent: the bytes
    that the busiest rank receives, forward, and in how many steps.
    """

    name: str
    why_not: Callable[[Call, Sequences], str]
    run: Callable[[WholeCall, Sequences], Tensor]
    sent: Callable[[Call, Sequences], tuple[int, int]]


def _why_not_move(_: Call, spread: Sequences) -> str:
    """Why keys or queries are not moved; "" where they are."""
    return heads.KEYS_ARE_WHOLE if spread.source is None else ""


# "auto" takes the first of those that receive least
TABLE: tuple[Way, ...] = (
    Way("gather", lambda call, spread: "", gather.run, gather.sent),
    Way("heads", heads.why_not, heads.run, heads.sent),
    Way("queries", _why_not_move, queries.run, queries.sent),
    Way("ring", _why_not_move, ring.run, ring.sent),
)


@dataclass(frozen=True)
class WayChoice:
    """Which way would run a call, and why each of the others would not.

    sent: of each way that could, the bytes that the busiest rank receives forward, and the steps.
    """

    chosen: str
    reasons: dict[str, str]
    sent: dict[str, tuple[int, int]]

    def __str__(self) -> str:
        width = max(len(name) for name in self.reasons)
        return "\n".join(f"{name:<{width}}  {self._line(name)}" for name in self.reasons)

    __repr__ = __str__

    def _line(self, name: str) -> str:
        if name not in self.sent:
            return self.reasons[name]
        size, steps = self.sent[name]
        moves = f"the busiest rank receives {_shown(size)} in {steps} step{'' if steps == 1 else 's'}"
        return f"{self.reasons[name] or 'runs'}: {moves}"


def choose(call: Call, spread: Sequences, name: str) -> Way:
    """The way that runs this call: the one named, or BackendError with its reason; "auto": what moves least."""
    check_name(name)
    if name == "auto":
        widths = (*call.sizes[:2], call.k.shape[1], call.q.shape[3], *call.v.shape[3:1:-1], call.q.dtype)
        name = planned(_name_of_cheapest, call.mask, spread, *widths)
    way = next(way for way in TABLE if way.name == name)
    if reason := way.why_not(call, spread):
        raise BackendError(f'way="{name}" cannot run this call: {reason}; use way="auto"')
    return way


def check_name(name: str) -> None:
    """Raise ArgumentError unless it is that of a way, or "auto"."""
    if name != "auto" and all(way.name != name for way in TABLE):
        listed = ", ".join(f'"{way.name}"' for way in TABLE)
        raise ArgumentError(f'way must be "auto", {listed}; got {name!r}')


def report(call: Call, spread: Sequences, name: str = "auto") -> WayChoice:
    """What `choose` would say of every way."""
    first, sent = _cheapest(call, spread)
    chosen = first if name == "auto" else choose(call, spread, name)
    reasons = {way.name: way.why_not(call, spread) or "could run" for way in TABLE}
    reasons[chosen.name] = ""
    return WayChoice(chosen.name, reasons, sent)


def _cheapest(call: Call, spread: Sequences) -> tuple[Way, dict[str, tuple[int, int]]]:
    """The first of the ways that receive least, and what each receives: the same on every rank."""
    able = [way for way in TABLE if not way.why_not(call, spread)]
    sent = {way.name: way.sent(call, spread) for way in able}
    return min(able, key=lambda way: sent[way.name][0]), sent


def _name_of_cheapest(
    mask: Mask | None, spread: Sequences, B: int, Hq: int, Hk: int, D: int, Dv: int, held: int, dtype: torch.dtype
) -> str:
    """That of `_cheapest`, for a call of these sizes."""
    sizes = ((Hq, len(spread.tokens), D), (Hk, held, D), (Hk, held, Dv))
    q, k, v = (torch.empty(B, *size, dtype=dtype, device="meta") for size in sizes)
    return _cheapest(Call(q, k, v, mask), spread)[0].name


def _shown(size: int) -> str:
    """Bytes with three digits and a unit.

    >>> _shown(4_718_592)
    '4.72 MB'
    """
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= unit:
            return f"{size / unit:.3g} {name}"
    return f"{size} bytes"
