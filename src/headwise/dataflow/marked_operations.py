"""Marked operations: an operation of a run with the marks of what it takes and gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch import Tensor

from headwise.dataflow.contractions import Einsum
from headwise.dataflow.index_maps import is_movement
from headwise.dataflow.provenance import Marks
from headwise.recording import Operation, Recalled, Site, TensorSeen, site_of, tensors
from headwise.source import Span

__all__ = ["ADDITIONS", "LIKENED", "NEW", "SHAPED", "SOFTMAXES", "MarkedOp", "Replaced"]

ADDITIONS = frozenset({"+", "+=", "add", "add_"})
# the operations that normalise scores, by torch's names
SOFTMAXES = ("softmax", "log_softmax", "softmin", "_softmax")
# these take only the shape or dtype of another tensor
NEW = frozenset({"new_empty", "new_zeros", "new_ones", "new_full", "empty_like", "zeros_like", "ones_like", "full_like",
                 "rand_like", "randn_like"})  # fmt: skip
# the second tensor gives only the dtype, or only the shape
LIKENED = frozenset({"to", "type_as"})
SHAPED = frozenset({"expand_as", "view_as", "reshape_as"})
Replaced = Callable[..., Any]


@dataclass
class MarkedOp:
    """One operation. given, output_marks: the marks of its inputs and outputs; joint: its contraction; change: its
    replacement; None: it has none. factors: the tensors that it adds up products of, which count as its inputs.
    """

    at: int
    operation: Operation
    function: Callable[..., Any]
    args: tuple[Any, ...]
    options: Mapping[str, Any]
    given: tuple[Marks | None, ...]
    output_marks: tuple[Marks | None, ...]
    joint: Einsum | None = None
    change: Replaced | None = None
    factors: tuple[Tensor, ...] = ()

    @property
    def rules(self) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        """The arguments and options of torch's attention, after a replacement."""
        if isinstance(self.change, Recalled):
            return self.args[:3], self.change.options(self.options)
        return self.args, self.options

    @property
    def name(self) -> str:
        """The short name of the operation: "view", "/"."""
        return self.operation.name

    @property
    def last(self) -> str:
        """The last part of its name in torch."""
        return self.operation.last

    @property
    def span(self) -> Span:
        """Its place in the source."""
        return self.operation.span

    @property
    def site(self) -> Site:
        """Where a replacement stands in for it."""
        return site_of(self.operation)

    @property
    def inputs(self) -> tuple[TensorSeen, ...]:
        """The tensors that it took."""
        return self.operation.inputs

    @property
    def outputs(self) -> tuple[TensorSeen, ...]:
        """The tensors that it gave."""
        return self.operation.outputs

    @property
    def taken(self) -> set[int]:
        """The numbers of the tensors that it took."""
        return self.operation.taken

    @property
    def results(self) -> set[int]:
        """The numbers of the tensors that it gave."""
        return self.operation.results

    @property
    def value(self) -> Tensor | None:
        """The value of its first output; None: it has none, or values are not recorded."""
        return self.outputs[0].value if self.outputs else None

    @property
    def pair(self) -> Marks | None:
        """The marks of its first output, where these are queries and keys; None: they are not."""
        marks = self.output_marks[0] if self.output_marks else None
        return marks if marks is not None and marks.kind == "pair" else None

    @property
    def is_marked(self) -> bool:
        """Whether any of its inputs depends on the arguments of the run."""
        return any(marks is not None for marks in self.given)

    @property
    def is_movement(self) -> bool:
        """Whether it only moves entries."""
        return is_movement(self.operation.function)

    @property
    def marked_inputs(self) -> list[TensorSeen]:
        """Its inputs that depend on the arguments of the run."""
        return [tensor for tensor, marks in zip(self.inputs, self.given, strict=True) if marks is not None]

    @property
    def unmarked_inputs(self) -> list[TensorSeen]:
        """Its inputs that do not depend on the arguments of the run: weights, masks and constants."""
        return [tensor for tensor, marks in zip(self.inputs, self.given, strict=True) if marks is None]

    @property
    def handed_on(self) -> list[tuple[TensorSeen, Marks]]:
        """The inputs with marks whose values enter the result, without those that give only dtype or shape."""
        taken = 0 if self.last in NEW else 1 if self.last in LIKENED | SHAPED else len(self.given)
        pairs = zip(self.inputs[:taken], self.given[:taken], strict=True)
        return [(tensor, marks) for tensor, marks in pairs if marks is not None]

    @cached_property
    def tensors(self) -> list[Tensor]:
        """Its tensors, in order."""
        return list(self.factors or tensors((self.args, self.options)))
