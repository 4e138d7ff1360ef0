"""Derived tensors: what is computed from a mask, kept with the mask and shared by every call that uses it."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Hashable
from ctypes import string_at
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from headwise.masks.leaves import Ruled
from headwise.masks.mask import Mask

T = TypeVar("T")
# the shape of a tensor, and what it holds
Bytes = tuple[torch.Size, bytes]

# tensors of a mask up to this many entries are compared with copies of them, which costs less than the mask does
MOST_COMPARED = 1 << 18
# and up to so many bytes as bytes: an operation of torch costs more than to read them
MOST_BYTES_COMPARED = 1 << 14
# the bytes of the entries by which larger ones are compared
WORD = 8
# a mask that meets new sizes at each step, as in decoding, forgets the oldest results
MOST_RESULTS = 64
# masks without tensors are equal by their numbers, and share one table
MOST_TABLES = 64
# the results of all masks together; the oldest are forgotten first
MOST_BYTES = 1 << 26

MISSING: Any = object()
CHANGED = "a mask's tensor was changed behind torch's back: change it without .data, or make the mask anew"


@dataclass(slots=True, eq=False, weakref_slot=True)
class DerivedTable:
    """Results derived from a mask by a key that names what they are and for which sizes, dtype and device.

    tensors: those of the mask; copies: of what they held when the results were made, of small ones on the CPU as bytes;
    versions: as each counted its changes in place then. guarded: of the results, those found without their keys.
    """

    tensors: tuple[Tensor, ...]
    copies: tuple[Tensor | Bytes, ...]
    versions: tuple[int, ...]
    results: dict[Hashable, Any] = field(default_factory=dict)
    guarded: tuple[Any, ...] = ()

    def is_current(self) -> bool:
        """Whether the tensors of the mask still hold what the results were derived from.

        A device is not read for it: a tensor there is asked for its version, and a change that counted none, as through
        `.data`, is an assertion that the device raises.
        """
        # this runs before every call with the mask
        for t, copy, version in zip(self.tensors, self.copies, self.versions, strict=True):
            if isinstance(copy, tuple):
                shape, held = copy
                if t.shape != shape or not t.is_contiguous() or (held and not t.data_ptr()):
                    return False
                if string_at(t.data_ptr(), len(held)) != held:
                    return False
            elif t.device.type == "cpu":
                if not _are_equal(t, copy):
                    return False
            elif t._version != version:
                return False
            else:
                torch._assert_async(t.eq(copy).all(), CHANGED)
        return True

    def add(self, key: Hashable, result: Any, size: int) -> None:
        """Keep a result of so many bytes, if there is room for it; threads may add at the same time."""
        if size > MOST_BYTES:
            return
        with room.lock:
            self.forget(key)
            if len(self.results) >= MOST_RESULTS:
                self.forget(next(iter(self.results)))
            room.take(self, key, size)
            self.results[key] = result

    def forget(self, key: Hashable) -> None:
        if self.results.pop(key, MISSING) is not MISSING:
            self.guarded = tuple(call for call in self.guarded if call.key != key)
            room.free(id(self), key)


@dataclass(slots=True, eq=False)
class LayoutTable(DerivedTable):
    """Results that depend on how the tensors of a mask lie, not on what they hold; copies and versions are empty."""

    layouts: tuple[tuple[torch.Size, torch.dtype, torch.device], ...] = ()

    def is_current(self) -> bool:
        """Whether the tensors have the shapes, dtypes and devices that they had."""
        return all((t.shape, t.dtype, t.device) == layout for t, layout in zip(self.tensors, self.layouts, strict=True))


class Room:
    """The bytes that the results of all tables take, the oldest first; a table that is gone takes none."""

    def __init__(self) -> None:
        self.used = 0
        # a table may go, and free its room, while another is being added to
        self.lock = threading.RLock()
        self._sizes: dict[tuple[int, Hashable], int] = {}
        self._tables: dict[int, weakref.ref[DerivedTable]] = {}

    def take(self, owner: DerivedTable, key: Hashable, size: int) -> None:
        """Room for a result, from which the oldest ones go where it is needed."""
        while self._sizes and self.used + size > MOST_BYTES:
            place = next(iter(self._sizes))
            table = self._tables[place[0]]()
            if table is None:
                self._close(place[0])
            else:
                table.forget(place[1])
        number = id(owner)
        if number not in self._tables:
            self._tables[number] = weakref.ref(owner, lambda _: self._close(number))
        self._sizes[number, key] = size
        self.used += size

    def free(self, number: int, key: Hashable) -> None:
        """Give back what a result took."""
        self.used -= self._sizes.pop((number, key), 0)

    def _close(self, number: int) -> None:
        with self.lock:
            self._tables.pop(number, None)
            for place in [place for place in self._sizes if place[0] == number]:
                self.free(*place)


Table = TypeVar("Table", bound=DerivedTable)
room = Room()
# of a mask that was not used yet
STALE = DerivedTable((), (), ())


def table(mask: Mask) -> DerivedTable | None:
    """The results that are kept with a mask; None where none may be.

    None: while compiling, under a torch.func transform or a dispatch mode, whose tensors must not outlive them; for
    masks with a function, which may read anything, or with tensors that are not plain ones on the CPU or too large.
    A tensor that was changed in place, by whatever means, empties the table.
    """
    return plain_table(mask) if may_keep() else None


def plain_table(mask: Mask) -> DerivedTable | None:
    """`table` where nothing compiles and no transform or mode is at work."""
    return _current(mask, "_table", _table_of)


def device_table(mask: Mask) -> DerivedTable | None:
    """The results, of those for which a device has to be read, that are kept with a mask whose tensors are on one.

    None: where `table` gives None too, but for the device; while a CUDA graph is captured, which is run again with
    other numbers; for tensors made in inference mode, which count no changes.
    """
    return _current(mask, "_device_table", _device_table_of) if may_keep() else None


def layout_table(mask: Mask) -> LayoutTable | None:
    """The results that depend on the layout of a mask's tensors, which are on a device; None where none may be kept."""
    return _current(mask, "_layout_table", _layout_table_of) if may_keep() else None


def may_keep() -> bool:
    """Whether tensors that are made now may outlive the call."""
    return not (
        torch.compiler.is_compiling()
        or torch._C._functorch.peek_interpreter_stack() is not None
        or torch._C._len_torch_dispatch_stack()
        or is_capturing()
    )


def is_capturing() -> bool:
    """Whether a CUDA graph is captured: it computes when it is run, and in its own memory, from what is then there."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def _current(mask: Mask, name: str, make: Callable[[Mask], Table | None]) -> Table | None:
    """The table of this name, made anew where the mask has changed."""
    known: Any = mask.__dict__.get(name, STALE)
    if known is None:
        return None
    if known is STALE or not known.is_current():
        known = make(mask)
        # beside the fields: not compared, not copied, not pickled, and no part of the tree
        object.__setattr__(mask, name, known)
    current: Table | None = known
    return current


def derived(
    mask: Mask,
    key: Hashable,
    make: Callable[[], T],
    *,
    keeps: Callable[[T], bool] = lambda result: True,
    is_read: bool = False,
) -> T:
    """make(), or what it gave before under this key, while the mask is the same. keeps: whether to keep a result.

    is_read: whether make() reads the device of the mask's tensors, so that its result is kept there too.
    """
    kept = table(mask)
    if kept is None and is_read:
        kept = device_table(mask)
    if kept is None:
        return make()
    result: T = kept.results.get(key, MISSING)
    if result is not MISSING:
        return result
    # a tensor made in inference mode could not be saved for a backward pass later
    with torch.inference_mode(False), torch.no_grad():
        result = make()
    if keeps(result):
        kept.add(key, result, size_of(result))
    return result


def size_of(result: object) -> int:
    """The bytes of the tensors that a result is, or holds."""
    if isinstance(result, Tensor):
        return result.nbytes
    return sum(map(size_of, result)) if isinstance(result, tuple) else 0


def _table_of(mask: Mask) -> DerivedTable | None:
    if has_function(mask):
        return None
    tensors = tuple(leaf for leaf in pytree.tree_leaves(mask) if isinstance(leaf, Tensor))
    if not tensors:
        return _table_of_numbers(mask)
    return None if any(t.device.type != "cpu" for t in tensors) else _table_of_tensors(tensors)


def _device_table_of(mask: Mask) -> DerivedTable | None:
    tensors = tuple(leaf for leaf in pytree.tree_leaves(mask) if isinstance(leaf, Tensor))
    if has_function(mask) or not tensors or any(t.is_inference() or t.device.type == "cpu" for t in tensors):
        return None
    return _table_of_tensors(tensors)


def _layout_table_of(mask: Mask) -> LayoutTable | None:
    tensors = tuple(leaf for leaf in pytree.tree_leaves(mask) if isinstance(leaf, Tensor))
    if has_function(mask) or not tensors:
        return None
    # what was made in inference mode can be saved for no backward pass, which a view of it may be
    if any(type(t) is not Tensor or not t.is_cuda or t.is_inference() for t in tensors):
        return None
    return LayoutTable(tensors, (), (), layouts=tuple((t.shape, t.dtype, t.device) for t in tensors))


def _table_of_tensors(tensors: tuple[Tensor, ...]) -> DerivedTable | None:
    if any(type(t) is not Tensor for t in tensors) or sum(t.numel() for t in tensors) > MOST_COMPARED:
        return None
    versions = tuple(0 if t.is_inference() else t._version for t in tensors)
    return DerivedTable(tensors, tuple(_copy(t) for t in tensors), versions)


def _copy(t: Tensor) -> Tensor | Bytes:
    if t.device.type == "cpu" and t.is_contiguous() and t.nbytes <= MOST_BYTES_COMPARED:
        return t.shape, string_at(t.data_ptr(), t.nbytes)
    return t.clone()


@lru_cache(maxsize=MOST_TABLES)
def _table_of_numbers(_: Mask) -> DerivedTable:
    return DerivedTable((), (), ())


def _are_equal(t: Tensor, copy: Tensor) -> bool:
    """Whether two tensors on the CPU hold the same numbers in the same shape."""
    if t.shape != copy.shape:
        return False
    if _is_of_words(t) and _is_of_words(copy):
        # torch compares entry by entry, and eight of a bool tensor are one word
        t, copy = (tensor.flatten().view(torch.int64) for tensor in (t, copy))
    return torch.equal(t, copy)


def _is_of_words(t: Tensor) -> bool:
    return t.is_contiguous() and t.nbytes % WORD == 0 == t.storage_offset() * t.element_size() % WORD


def has_function(mask: Mask) -> bool:
    """Whether a part of a mask is a function, which may read anything."""
    return isinstance(mask, Ruled) or any(has_function(part) for part in mask._parts())
