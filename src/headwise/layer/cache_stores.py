"""Cache stores: the tensors of a cache, one entry per token along their slot axis, in three ways of storing."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

# keys (B, Hk, S, D), values (B, Hk, S, Dv), whether a token is real (B, S), its position (B, S): the axis of S
SLOT_AXIS = {"k": 2, "v": 2, "keep": 1, "position": 1}
FIRST_CAPACITY = 16

Rows = dict[str, Tensor]


class Counter:
    """How many tokens a cache has seen: a tensor that compiled steps count on, and the number that it holds.

    The number is read from the device only where something else than `add` and `move` has changed the tensor.
    """

    def __init__(self, device: torch.device) -> None:
        # a tensor of inference mode has no version
        with torch.inference_mode(False):
            self.tensor = torch.zeros((), dtype=torch.int64, device=device)
        # the version of the tensor at which its number was known; None: it has to be read at any time
        self._version: int | None = self.tensor._version
        self._number = 0

    @property
    def number(self) -> int:
        if self._version is None or torch.compiler.is_compiling():
            return int(self.tensor)
        if self._version != self.tensor._version:
            self._know(int(self.tensor))
        return self._number

    def add(self, steps: int) -> None:
        """So many more tokens were seen."""
        if torch.compiler.is_compiling():
            self.tensor += steps
            return
        if self.tensor.is_cuda and torch.cuda.is_current_stream_capturing():
            # a graph that is replayed changes the tensor, and nothing of what Python knows
            self._version = None
            self.tensor += steps
            return
        number = self.number + steps
        self.tensor += steps
        self._know(number)

    def move(self, number: int) -> None:
        """So many tokens were seen."""
        self.tensor.fill_(number)
        self._know(number)

    def _know(self, number: int) -> None:
        if self._version is not None:
            self._version, self._number = self.tensor._version, number

    def __deepcopy__(self, memo: dict[int, Any]) -> Counter:
        again = Counter(self.tensor.device)
        memo[id(self)] = again
        again.move(self.number)
        return again

    def __reduce__(self) -> tuple[Any, ...]:
        return _counted, (self.tensor.device, self.number)


def _counted(device: torch.device, number: int) -> Counter:
    made = Counter(device)
    made.move(number)
    return made


class Store(Protocol):
    """Where a cache keeps its rows."""

    rows: Rows

    def put(self, new: Rows, cursor: Tensor | int, *, whole: bool) -> Rows:
        """Write the rows of the next tokens, and return the rows that these tokens' queries attend to."""

    def slots(self, cursor: Tensor | int) -> int:
        """How many slots a row has that begins to be kept now."""


class GrowingStore:
    """Buffers that double when they are full: a token is copied O(1) times on average."""

    def __init__(self) -> None:
        self.rows: Rows = {}

    def put(self, new: Rows, cursor: Tensor | int, *, whole: bool) -> Rows:
        used = int(cursor)
        return self._put(new, used, used + new["k"].shape[2])

    def _put(self, new: Rows, used: int, total: int) -> Rows:
        """Write entries to the slots from `used` on, and give all slots up to `total`."""
        views = {}
        for name, entries in new.items():
            axis = SLOT_AXIS[name]
            buffer = self.rows.get(name)
            if buffer is None or total > buffer.shape[axis] or is_locked(buffer):
                buffer = self.rows[name] = _grown(buffer, entries, axis, used, total)
            buffer.narrow(axis, used, total - used).copy_(entries)
            views[name] = buffer.narrow(axis, 0, total)
        return views

    def slots(self, cursor: Tensor | int) -> int:
        return int(cursor)


class StaticStore:
    """Buffers of one length, zeros at first, made with the first tokens: compiled steps find them again.

    The cursor is a number where queries attend to the slots so far only, and a tensor in compiled steps.
    """

    def __init__(self, length: int) -> None:
        self.rows: Rows = {}
        self.length = length

    def put(self, new: Rows, cursor: Tensor | int, *, whole: bool) -> Rows:
        steps = new["k"].shape[2]
        for name, entries in new.items():
            if name not in self.rows:
                self.rows[name] = torch.zeros_like(_resized(entries, SLOT_AXIS[name], self.length))
            buffer = self.rows[name] = unlocked(self.rows[name])
            if whole:
                slots = cursor + torch.arange(steps, device=buffer.device)
                buffer.index_copy_(SLOT_AXIS[name], slots, entries)
            else:
                buffer.narrow(SLOT_AXIS[name], int(cursor), steps).copy_(entries)
        if whole:
            return dict(self.rows)
        return {name: row.narrow(SLOT_AXIS[name], 0, int(cursor) + steps) for name, row in self.rows.items()}

    def slots(self, cursor: Tensor | int) -> int:
        return self.length


class RingStore:
    """The first `sinks` tokens, and the last `window` ones in a ring: token t lives at sinks + (t - sinks) % window."""

    def __init__(self, window: int, sinks: int) -> None:
        self.rows: Rows = {}
        self.window, self.sinks = window, sinks

    def tokens(self, seen: Tensor) -> Tensor:
        """Which token each slot holds after `seen` tokens, (S,); -1 in an empty slot."""
        slot = torch.arange(self.sinks + self.window, device=seen.device)
        latest = seen - 1 - (seen - 1 - slot) % self.window
        ring = torch.where(latest >= self.sinks, latest, -1)
        return torch.where(slot < self.sinks, torch.where(slot < seen, slot, -1), ring)

    def put(self, new: Rows, cursor: Tensor | int, *, whole: bool) -> Rows:
        steps = new["k"].shape[2]
        views, cursor = {}, torch.as_tensor(cursor, device=new["k"].device)
        held = self.tokens(cursor + steps)
        fresh, source = held >= cursor, (held - cursor).clamp(0, steps - 1)
        for name, entries in new.items():
            axis = SLOT_AXIS[name]
            if name not in self.rows:
                self.rows[name] = torch.zeros_like(_resized(entries, axis, self.sinks + self.window))
            buffer = self.rows[name] = unlocked(self.rows[name])
            # several tokens at once: the first of them still attend to what the last of them push out
            before = None if steps == 1 else torch.cat([buffer, entries], axis)
            picked = fresh.view(-1, *(1,) * (buffer.ndim - 1 - axis))
            buffer.copy_(torch.where(picked, entries.index_select(axis, source), buffer))
            views[name] = buffer if before is None else before
        return views

    def slots(self, cursor: Tensor | int) -> int:
        return self.sinks + self.window


def is_locked(buffer: Tensor) -> bool:
    """Whether a tensor made in inference mode is now to be written outside it, which torch refuses."""
    return not torch.compiler.is_compiling() and buffer.is_inference() and not torch.is_inference_mode_enabled()


def unlocked(buffer: Tensor) -> Tensor:
    """The buffer, or a copy of it where it is locked."""
    return buffer.clone() if is_locked(buffer) else buffer


def _grown(buffer: Tensor | None, entries: Tensor, axis: int, used: int, total: int) -> Tensor:
    old = 0 if buffer is None else buffer.shape[axis]
    capacity = old if total <= old else max(total, 2 * old, FIRST_CAPACITY)
    grown = _resized(entries, axis, capacity)
    if buffer is not None:
        grown.narrow(axis, 0, used).copy_(buffer.narrow(axis, 0, used))
    return grown


def _resized(like: Tensor, axis: int, length: int) -> Tensor:
    shape = list(like.shape)
    shape[axis] = length
    return like.new_empty(shape)
