"""Operations: what a recorded run did, each as the person wrote it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from headwise.source import Span

__all__ = ["Failure", "Kernel", "Operation", "Record", "TensorSeen"]


@dataclass(frozen=True)
class TensorSeen:
    """A tensor as an operation met it, without its values.

    number: the tensor itself, storage: the memory under it; both count up from 0 in the order in which they were met.
    """

    number: int
    storage: int
    shape: tuple[int, ...]
    dtype: torch.dtype
    strides: tuple[int, ...]
    offset: int
    requires_grad: bool
    value: Tensor | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class Kernel:
    """One operation that torch really ran, by its aten name."""

    name: str
    inputs: tuple[tuple[int, ...], ...]
    outputs: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Operation:
    """One operation as it was written.

    name: as the person would say it ("linear", "view", "/", "index"). function: its full name in torch. span: where it
    was written; chain: the calls of the person's own functions that led there, outermost first. module: the full name
    of the innermost module, "": the one that was run. arguments: what came besides tensors. writes: the numbers of
    the tensors that it changed in place. kernels: what torch really ran for it, where that was asked for.
    """

    name: str
    function: str
    span: Span
    chain: tuple[Span, ...]
    module: str
    inputs: tuple[TensorSeen, ...]
    outputs: tuple[TensorSeen, ...]
    arguments: dict[str, Any] = field(default_factory=dict)
    writes: tuple[int, ...] = ()
    kernels: tuple[Kernel, ...] = ()


@dataclass(frozen=True)
class Failure:
    """The error that ended a run, and the operation that raised it; None: no operation of torch did."""

    error: BaseException
    span: Span | None
    operation: Operation | None


@dataclass(frozen=True)
class Record:
    """What a run did, in order, what it returned, and how it failed; None: it did not."""

    operations: tuple[Operation, ...]
    result: Any = field(default=None, repr=False)
    failure: Failure | None = None
