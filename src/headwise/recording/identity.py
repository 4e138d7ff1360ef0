"""Identity: numbers of the tensors of a run and of their storages, without a reference to either."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.parameter import is_lazy
from torch.utils.weak import WeakIdKeyDictionary

from headwise.recording.operations import TensorSeen

__all__ = ["Identities", "tensors", "versions_of"]

_STRIDED = torch.strided
# the types of most arguments, which hold no tensor
PLAIN = frozenset({int, float, bool, str, type(None), torch.dtype, torch.device, torch.Size})


class Identities:
    """The tensors of a run, numbered in the order in which they appear. values: keep copies of their values."""

    def __init__(self, *, values: bool = False) -> None:
        self._values = values
        self._numbers: WeakIdKeyDictionary = WeakIdKeyDictionary()
        self._tensors = 0
        self._copies: dict[int, Tensor] = {}
        # while the weak reference lives, no other storage gets its address
        self._storages: dict[int, tuple[StorageWeakRef, int]] = {}

    def snapshots(self, every: Iterable[Tensor]) -> tuple[TensorSeen, ...]:
        """The present states of some tensors."""
        with torch._C.DisableTorchFunction():
            # reading properties must not reach the function modes around this one
            return tuple(map(self._snapshot, every))

    def _snapshot(self, t: Tensor) -> TensorSeen:
        strides = tuple(t.stride()) if t.layout is _STRIDED else ()
        number, storage = self.number(t), self._storage(t)
        return TensorSeen(
            number=number,
            storage=storage,
            shape=tuple(t.shape),
            dtype=t.dtype,
            strides=strides,
            offset=int(t.storage_offset()) if strides else 0,
            requires_grad=t.requires_grad,
            value=self._copy(t, number, is_plain=storage >= 0) if self._values else None,
        )

    def _copy(self, t: Tensor, number: int, *, is_plain: bool) -> Tensor:
        """A copy of a tensor; the last copy where the values are unchanged."""
        last = self._copies.get(number)
        if is_plain and last is not None and _is_same(last, t):
            return last
        self._copies[number] = t.detach().clone()
        return self._copies[number]

    def number(self, t: Tensor) -> int:
        """The number of a tensor, the next one for a new tensor."""
        number = self._numbers.get(t)
        if number is None:
            number, self._tensors = self._tensors, self._tensors + 1
            self._numbers[t] = number
        return int(number)

    def _storage(self, t: Tensor) -> int:
        if t.layout is not _STRIDED:
            return -1
        try:
            reference = StorageWeakRef(t.untyped_storage())
        except NotImplementedError:
            # vmap and grad of torch.func wrap the tensor in another one
            return -1
        return self._storages.setdefault(reference.cdata, (reference, len(self._storages)))[1]


def _is_same(last: Tensor, t: Tensor) -> bool:
    return (
        last.shape == t.shape and last.dtype == t.dtype and last.stride() == t.stride() and bool(torch.equal(last, t))
    )


def versions_of(every: Iterable[Tensor]) -> list[int]:
    """How often each tensor was changed in place; -1 for a tensor of inference mode, which does not count it."""
    with torch._C.DisableTorchFunction():
        return [-1 if t.is_inference() else t._version for t in every]


def tensors(value: Any) -> Iterator[Tensor]:
    """The tensors in nested tuples, lists, dictionaries and plain objects, in order; a lazy parameter with no shape is
    none.
    """
    collected: list[Tensor] = []
    _collect(value, collected)
    return iter(collected)


def _collect(value: Any, collected: list[Tensor]) -> None:
    if type(value) in PLAIN:
        return
    if isinstance(value, Tensor):
        if not is_lazy(value):
            collected.append(value)
    elif isinstance(value, (tuple, list)):
        for item in value:
            _collect(item, collected)
    elif isinstance(value, Mapping):
        for item in value.values():
            _collect(item, collected)
    elif isinstance(value, SimpleNamespace):
        _collect_parts(value, list(vars(value)), collected)
    elif is_dataclass(value) and not isinstance(value, type):
        _collect_parts(value, [field.name for field in fields(value)], collected)


def _collect_parts(value: Any, names: Sequence[str], collected: list[Tensor]) -> None:
    """Collect the parts of an object, but for those that are objects too: one may hold what holds it."""
    for name in names:
        part = getattr(value, name, None)
        if isinstance(part, Tensor | tuple | list | Mapping):
            _collect(part, collected)
