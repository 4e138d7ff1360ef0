"""Refusals: why calls of attention cannot be changed, raised where they are to be."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

from headwise.intervening.edit_types import EditError, PatternEdit
from headwise.watching import CallRecord

__all__ = ["Refusals", "check_call", "check_weights"]

CHECKPOINT = "torch/utils/checkpoint.py"


class Refusals:
    """In place of what takes maps in: raises where a call that is to be changed cannot be.

    is_edited: whether calls under a name are to be changed.
    """

    def __init__(self, is_edited: Callable[[str], bool]) -> None:
        self._is_edited, self._counts = is_edited, dict[str, int]()
        # why a module has no call that could be changed, to be told where an edit met none
        self.reasons: dict[str, str] = {}

    def note_run(self) -> None:
        """Something runs."""

    def count(self, name: str) -> int:
        """How many calls of a module came."""
        return self._counts.get(name, 0)

    def add(self, name: str, record: CallRecord) -> None:
        """A call came."""
        self._counts[name] = self.count(name) + 1

    def read(self, name: str, make: Callable[[], CallRecord]) -> None:
        """A call came, of a kernel that is not changed."""
        self.miss(name, "runs in a fused kernel that is called by itself")

    def miss(self, name: str, reason: str) -> None:
        """A call cannot be changed; ArgumentError where it is to be."""
        self._counts[name] = self.count(name) + 1
        self.reasons.setdefault(name, reason)
        error = sys.exc_info()[1]
        if isinstance(error, EditError):
            raise error
        if self._is_edited(name):
            raise EditError(
                f'the attention of "{name}" cannot be changed: {"" if reason.startswith("its ") else "it "}{reason}'
            )

    def miss_softmaxes(self, reasons: dict[str, str]) -> None:
        """Softmaxes that are no attention."""
        for name, reason in reasons.items():
            self.reasons.setdefault(name, reason)


def check_call(name: str, record: CallRecord) -> None:
    """Refuse calls whose changes would be undone, or are of a part only."""
    if record.spread is not None or record.heads is not None:
        raise EditError(f'the attention of "{name}" is shared by ranks, and cannot be changed: run it in one process')
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename.endswith(CHECKPOINT):
            raise EditError(
                f'the attention of "{name}" runs in an activation checkpoint, which computes it again without the '
                "edits once the block has ended: turn checkpointing off"
            )
        frame = frame.f_back


def check_weights(name: str, record: CallRecord, changes: list[PatternEdit]) -> None:
    """Refuse changes of weights that dropout has been at, or whose values are not known."""
    if record.dropout:
        raise EditError(
            f'{changes[0].text} changes weights, of which "{name}" drops some at random: call model.eval() first'
        )
    if record.v is None:
        raise EditError(f'{changes[0].text} needs the values of "{name}", which could not be followed')
