"""Learned tokens: parameters that are handed on as queries are: seeds, slots, latents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

import torch
from torch import Tensor, nn

from headwise.dataflow.provenance import LEARNED, Marks, place_of, source_of, token, tokens
from headwise.recording import Operation

__all__ = ["LearnedTokens"]

# the sources of what is copied begin here, after those of arguments
COPIED = 500
# what makes a batch of what is the same for all
COPIES = frozenset({"expand", "repeat", "tile", "broadcast_to", "expand_as"})
# what gives the same numbers in another shape
SHAPES = frozenset({"unsqueeze", "view", "reshape", "__getitem__"})
LAYERS = frozenset({"linear", "layer_norm", "rms_norm"})


@dataclass
class LearnedTokens:
    """What of a run is learned and taken as tokens. reshaped: the numbers of parameters in another shape; copied: the
    sources of those that were copied for each batch element, which have one each, by their numbers.
    """

    reshaped: set[int] = field(default_factory=set)
    copied: dict[int, int] = field(default_factory=dict)

    def marks_of(self, operation: Operation, inputs: Sequence[Tensor]) -> Marks | None:
        """The marks of the first input of an operation, where it is a parameter that is taken as tokens: it is copied
        for each batch element, normalised or projected; None: it is none.
        """
        first = inputs[0] if inputs else None
        if first is None or first.ndim < 2:
            return None
        number, last = operation.inputs[0].number, operation.function.rpartition(".")[2]
        if not isinstance(first, nn.Parameter) and number not in self.reshaped:
            return None
        if last in SHAPES and [prod(tensor.shape) for tensor in operation.outputs] == [first.numel()]:
            self.reshaped.add(operation.outputs[0].number)
            return None
        if last in COPIES and any(prod(tensor.shape) > first.numel() for tensor in operation.outputs):
            source = self.copied.setdefault(number, COPIED + len(self.copied))
        elif last in LAYERS:
            source = LEARNED + number
        else:
            return None
        return tokens(tuple(first.shape), (*["place"] * (first.ndim - 1), "feature"), source)

    def as_copied(self, operation: Operation, marks: Marks | None) -> Marks | None:
        """The marks of a copy for each batch element, with the batch element of each token."""
        shape = operation.inputs[0].shape if operation.inputs else ()
        is_copy = bool(shape) and operation.inputs[0].number in self.copied and marks is not None
        if not is_copy or marks is None or marks.kind != "token" or len(marks.shape) < len(("B", "L", "D")):
            return marks
        if len(shape) == len(marks.shape) and shape[0] != 1:
            return marks
        t, samples = marks.arrays["t"], torch.arange(marks.shape[0]).reshape(-1, *[1] * (len(marks.shape) - 1))
        return Marks("token", {**marks.arrays, "t": token(source_of(t), samples, place_of(t))})
