"""Identity: numbers for the tensors of a run and for the memory under them, without holding either."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.parameter import is_lazy
from torch.utils.weak import WeakIdKeyDictionary

from headwise.recording.operations import TensorSeen

__all__ = ["Identities", "tensors"]

_STRIDED = torch.strided


class Identities:
    """The tensors that have been met, numbered in order. values: whether copies of what they hold are kept."""

    def __init__(self, *, values: bool = False) -> None:
        self._values = values
        self._numbers: WeakIdKeyDictionary = WeakIdKeyDictionary()
        self._tensors = 0
        self._held: dict[int, Tensor] = {}
        # a weak reference keeps the address of its memory from being given to another
        self._storages: dict[int, tuple[StorageWeakRef, int]] = {}

    def seen(self, t: Tensor) -> TensorSeen:
        """A tensor as it is now."""
        with torch._C.DisableTorchFunction():
            # no mode of anyone's is asked what it thinks of a look at a tensor
            return self._seen(t)

    def _seen(self, t: Tensor) -> TensorSeen:
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
        """What a tensor holds: the last copy of it, where that still is what it holds."""
        last = self._held.get(number)
        if is_plain and last is not None and _is_same(last, t):
            return last
        self._held[number] = t.detach().clone()
        return self._held[number]

    def number(self, t: Tensor) -> int:
        """The number of a tensor, a new one where it was not met before."""
        found = self._numbers.get(t)
        if found is None:
            found, self._tensors = self._tensors, self._tensors + 1
            self._numbers[t] = found
        return int(found)

    def _storage(self, t: Tensor) -> int:
        if t.layout is not _STRIDED:
            return -1
        try:
            reference = StorageWeakRef(t.untyped_storage())
        except NotImplementedError:
            # inside vmap and grad of torch.func there is a tensor around the tensor
            return -1
        return self._storages.setdefault(reference.cdata, (reference, len(self._storages)))[1]


def _is_same(last: Tensor, t: Tensor) -> bool:
    return (
        last.shape == t.shape and last.dtype == t.dtype and last.stride() == t.stride() and bool(torch.equal(last, t))
    )


def tensors(value: Any) -> Iterator[Tensor]:
    """The tensors in nested tuples, lists and dictionaries, in order; a lazy parameter without a shape is none."""
    if isinstance(value, Tensor):
        if not is_lazy(value):
            yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from tensors(item)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors(item)
