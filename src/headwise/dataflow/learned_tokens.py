"""Learned tokens: parameters that are handed on as queries are: seeds, slots, latents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

import torch
from torch import Tensor, nn

from headwise.dataflow.kept_provenance import last_states, summed
from headwise.dataflow.marked_operations import MarkedOp
from headwise.dataflow.provenance import LEARNED, LOST, Marks, place_of, sample_of, source_of, token, tokens
from headwise.recording import Operation

__all__ = ["LearnedTokens"]

# the sources of what is copied begin here, after those of arguments
COPIED = 500
# and those of what is made of others here
DERIVED = 600
# what makes a batch of what is the same for all
COPIES = frozenset({"expand", "repeat", "tile", "broadcast_to", "expand_as"})
# what gives the same numbers in another shape
SHAPES = frozenset({"unsqueeze", "view", "reshape", "__getitem__"})
LAYERS = frozenset({"linear", "layer_norm", "rms_norm"})


@dataclass
class LearnedTokens:
    """What of a run is learned and taken as tokens. reshaped: the numbers of parameters in another shape; copied: the
    sources of those that were copied for each batch element, which have one each, by their numbers; derived: the
    sources of what was made of other tokens.
    """

    reshaped: set[int] = field(default_factory=set)
    copied: dict[int, int] = field(default_factory=dict)
    derived: dict[int, int] = field(default_factory=dict)

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

    def source_of(self, number: int) -> int | None:
        """The source of tokens that are made of others, by the number of the tensor that holds them, as the last states
        of a recurrent layer; None: there are too many.
        """
        source = self.derived.setdefault(number, DERIVED + len(self.derived))
        return source if source < LEARNED else None

    def last_states(self, entry: MarkedOp) -> tuple[Marks, ...]:
        """The marks of the last states of a recurrent layer: a token of each sample, where no others are weighed."""
        # the last argument of what takes a padded batch; packed tokens have one axis
        is_first = entry.args[-1] is True
        pairs = [(tuple(output.shape), self.source_of(output.number)) for output in entry.outputs[1:]]
        return tuple(
            LOST if source is None else last_states(entry.given[0], shape, is_first, source) for shape, source in pairs
        )

    def of_samples(self, entry: MarkedOp, marks: Marks) -> Marks:
        """The marks of a sum before any softmax: over all tokens of each batch element it is one token of it, as the
        mean is with which a decoder begins.
        """
        summand = entry.given[0]
        if summand is None or summand.kind != "token" or marks.kind != "token" or bool((marks.arrays["t"] >= 0).any()):
            return marks
        before, after = tuple(entry.inputs[0].shape), tuple(entry.outputs[0].shape)
        by_sample = Marks("token", {**summand.arrays, "t": sample_of(summand.arrays["t"])})
        samples = summed(by_sample, before, after, entry.args, entry.options).arrays["t"]
        is_of_samples = len(after) == len(("batch", "features")) and not bool((samples < 0).any())
        source = self.source_of(entry.outputs[0].number) if is_of_samples else None
        if source is None:
            return marks
        return Marks("token", {**marks.arrays, "t": token(source, samples, torch.tensor(0))})

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
