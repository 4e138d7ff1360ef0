"""Call sequence: where in a sequence the queries and keys of each call of a module lie, as of a cache."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from headwise.watching import CallRecord

__all__ = ["CallSequences", "SequenceStep"]


@dataclass(frozen=True, eq=False)
class SequenceStep:
    """The last call of a module, on so many keys. start, key: the positions of its first query and of its first key.

    first: the first key of each head.
    """

    q: Tensor
    keys: int
    start: int
    key: int
    first: Tensor


class CallSequences:
    """The last call of each module."""

    def __init__(self) -> None:
        self._steps: dict[str, SequenceStep] = {}

    def note(self, name: str, step: SequenceStep) -> None:
        """A call of a module was the last one."""
        self._steps[name] = step

    def clear(self) -> None:
        """Every module begins a new sequence."""
        self._steps.clear()

    def step(self, name: str, record: CallRecord) -> SequenceStep:
        """Where in its sequence a call lies: it goes on where the one before ended, or begins a new one.

        It goes on where the keys have grown by its queries, or to the size of a cache; or where it is one query on no
        more keys than before, as in such a cache and in the cross-attention of a decoder. Where the first key is
        another than before, the oldest have been dropped.
        """
        last, Lq, Lk = self._steps.get(name), record.q.shape[2], record.k.shape[2]
        if last is not None and last.q.data_ptr() == record.q.data_ptr() and last.q.shape == record.q.shape:
            return last
        first = record.k.detach()[:, :, :1].clone()
        start = key = 0
        is_same = last is not None and first.equal(last.first)
        if last is not None and Lq < Lk:
            has_grown = last.keys + Lq == Lk or (is_same and Lk > last.keys)
            if has_grown or (Lq == 1 and Lk <= last.keys):
                start = last.start + last.q.shape[2]
                key = last.key if is_same else start + Lq - Lk
        return SequenceStep(record.q, Lk, start, key, first)
