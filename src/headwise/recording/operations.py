"""Operations: what a recorded run did, with the source code of each operation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from headwise.source import Span

__all__ = ["Failure", "KernelCall", "Operation", "Record", "TensorSeen"]

# characters of an error that are reported
LONGEST = 300


@dataclass(frozen=True)
class TensorSeen:
    """A tensor at the time of an operation.

    number: of the tensor, storage: of its memory; both count from 0 in the order in which they appear. value: a copy,
    None where values are not recorded.
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
class KernelCall:
    """One operation that torch dispatched, by its aten name, with the shapes of its input and output tensors."""

    name: str
    inputs: tuple[tuple[int, ...], ...]
    outputs: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Operation:
    """One operation of user code.

    name: the short one ("linear", "view", "/", "index"). function: the full name in torch. span: its place in the
    source; chain: the calls of user functions that lead there, outermost first. module: the full name of the innermost
    module, "": the root module. arguments: those without tensors. writes: the numbers of the tensors that it changes in
    place. kernels: the operations that torch dispatched for it, where they are recorded.
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
    kernels: tuple[KernelCall, ...] = ()

    @property
    def last(self) -> str:
        """The last part of its name in torch."""
        return self.function.rpartition(".")[2]

    @property
    def taken(self) -> set[int]:
        """The numbers of the tensors that it took."""
        return {tensor.number for tensor in self.inputs}

    @property
    def results(self) -> set[int]:
        """The numbers of the tensors that it gave."""
        return {tensor.number for tensor in self.outputs}


@dataclass(frozen=True)
class Failure:
    """The error that ended a run, and the operation that raised it; None: user code raised it."""

    error: BaseException
    span: Span | None
    operation: Operation | None

    @property
    def words(self) -> str:
        """The type of the error and the first line of what it says, no longer than a report shows."""
        return f"{type(self.error).__name__}: {self.error}".splitlines()[0][:LONGEST]


@dataclass(frozen=True)
class Record:
    """The operations of a run in order, its result and its failure; None: it did not fail."""

    operations: tuple[Operation, ...]
    result: Any = field(default=None, repr=False)
    failure: Failure | None = None
