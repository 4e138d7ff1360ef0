"""LazyMatrix: four axes that are indexed like a tensor, and computed where they are indexed."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, NoReturn

import torch
from torch import Tensor

from headwise.errors import ArgumentError
from headwise.maps.blocks import PAIRS
from headwise.maps.indices import Index, Taken, count, whole
from headwise.maps.tensor_methods import refuse_attribute

# a block may be this many times as large as what is picked from it, before its pairs are computed one by one
WASTE = 4
SMALL = 1 << 16
MAX_BYTES = 1 << 30


class LazyMatrix(ABC):
    """What is lazy and has four axes: a part of it is computed when it is indexed."""

    @property
    @abstractmethod
    def shape(self) -> torch.Size:
        """(B, H, Lq, Lk)."""

    @property
    @abstractmethod
    def dtype(self) -> torch.dtype:
        """float32, or float64 where q is."""

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Where q and k are, and where every result comes from."""

    @property
    def ndim(self) -> int:
        """4."""
        return 4

    @abstractmethod
    def _ready(self) -> None:
        """Raise where the numbers cannot be had."""

    @abstractmethod
    def _block(self, taken: tuple[Taken, ...]) -> Tensor:
        """The numbers at what is taken from each axis."""

    @abstractmethod
    def _points(self, at: tuple[Tensor, ...]) -> Tensor:
        """The numbers at single places, (n,), each given by four indices (n,)."""

    def __getattr__(self, name: str) -> NoReturn:
        """Asked for what is not there only: an error that says what to write in its place."""
        refuse_attribute(self, name)

    def __len__(self) -> int:
        """B."""
        return self.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        """Each sample, (H, Lq, Lk), computed when its turn comes."""
        return (self[sample] for sample in range(len(self)))

    def __getitem__(self, index: Any) -> Tensor:
        """What a dense tensor would give for this index, computed from the rows and columns that it names only."""
        self._ready()
        legal = Index.read(index, self.shape, self.device)
        shape = legal.result_shape()
        self._check_bytes(shape, MAX_BYTES, "index less at once, or give dense() a larger max_bytes")
        taken, left = legal.block()
        entries = math.prod(count(t, size) for t, size in zip(taken, self.shape, strict=True))
        with torch.autocast(self.device.type, enabled=False):
            if entries <= max(SMALL, WASTE * shape.numel()):
                return self._block(taken)[left]
            places = [at.flatten().split(PAIRS) for at in legal.coordinates()]
            return torch.cat([self._points(at) for at in zip(*places, strict=True)]).view(shape)

    def dense(self, *, max_bytes: int = MAX_BYTES) -> Tensor:
        """All of it, (B, H, Lq, Lk).

        max_bytes: the most that the result may take; more raises ArgumentError with the size it would have.
        """
        self._ready()
        around = "index a part of it, reduce it (topk, pooled, entropy, received), or give a larger max_bytes"
        self._check_bytes(self.shape, whole("max_bytes", max_bytes), around)
        with torch.autocast(self.device.type, enabled=False):
            return self._block((slice(None),) * 4)

    def _check_bytes(self, shape: torch.Size, most: int, around: str) -> None:
        size = shape.numel() * self.dtype.itemsize
        if size > most:
            raise ArgumentError(
                f"the result {tuple(shape)} must fit in max_bytes={most} ({_mebibytes(most)}), but takes {size} bytes "
                f"({_mebibytes(size)}): {around}"
            )


def _mebibytes(size: int) -> str:
    return f"{size / (1 << 20):,.1f} MiB"
