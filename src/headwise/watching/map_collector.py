"""Map collector: the calls of a watched block as maps, and the reason for each that has none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext

import torch

from headwise.errors import AttentionError
from headwise.watching.record import CallRecord, unreadable
from headwise.watching.watched_maps import Seen

__all__ = ["ADVICE", "UNREAD", "MapCollector", "no_map"]

# what is added to the reason why a softmax is no map
ADVICE = ": if that is attention, call F.scaled_dot_product_attention, or make the map by hw.attention_map(q, k)"
# what a call of an unforeseen form may raise while it is read: the model has run, and must go on
UNREAD = (AttentionError, RuntimeError, ValueError, TypeError, IndexError, KeyError, AttributeError)


class MapCollector:
    """Adds the map of every call to `maps`, or the reason why it has none.

    edited: gives a call under a name the weights that it has once changed. grad: whether maps keep their graph.
    """

    def __init__(self, maps: Seen, edited: Callable[[str, CallRecord], CallRecord], *, grad: bool) -> None:
        self._maps, self._edited, self._grad = maps, edited, grad

    def note_run(self) -> None:
        """Something that is watched runs."""
        self._maps._has_run = True

    def count(self, name: str) -> int:
        """How many calls of a module were added or missed."""
        return self._maps._heard(name)

    def miss(self, name: str, reason: str) -> None:
        """A call has no map, for this reason."""
        self._maps._miss(name, reason)

    def miss_softmaxes(self, reasons: Mapping[str, str]) -> None:
        """Modules that compute softmaxes which are no maps: name -> the reason."""
        for name, reason in reasons.items():
            self.miss(name, reason + ADVICE)

    def add(self, name: str, record: CallRecord) -> None:
        """Add the map of a call, or the reason why it has none."""
        if reason := unreadable(record.q):
            self.miss(name, reason)
            return
        try:
            kept = self._edited(name, record).detached(grad=self._grad)
            result = kept.map()
        except UNREAD as error:
            self.miss(name, no_map(error))
            return
        self._maps._add(name, kept, result)

    def read(self, name: str, make: Callable[[], CallRecord]) -> None:
        """Add a call whose queries and keys are computed anew by `make`, with a graph only for `grad`."""
        try:
            with nullcontext() if self._grad else torch.no_grad():
                record = make()
        except UNREAD as error:
            self.miss(name, no_map(error))
            return
        self.add(name, record)


def no_map(error: Exception) -> str:
    """Why a call that ran has no map, from the error that its reading raised."""
    return f"its call takes a form that a map has not: {(str(error) or repr(error)).splitlines()[0]}"
