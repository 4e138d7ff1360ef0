"""Learned tokens: parameters that are handed on as queries are: seeds, slots, latents."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from torch import Tensor, nn

from headwise.dataflow.provenance import LEARNED, Marks, tokens
from headwise.recording import Operation

__all__ = ["learned_tokens"]

# what makes a batch of what is the same for all
COPIES = frozenset({"expand", "repeat", "tile", "broadcast_to", "expand_as"})
LAYERS = frozenset({"linear", "layer_norm", "rms_norm"})


def learned_tokens(operation: Operation, inputs: Sequence[Tensor]) -> Marks | None:
    """The marks of the first input of an operation, where it is a parameter that is taken as tokens: it is copied for
    each batch element, normalised or projected; None: it is none.
    """
    first = inputs[0] if inputs else None
    if not isinstance(first, nn.Parameter) or first.ndim < 2:
        return None
    last = operation.function.rpartition(".")[2]
    is_copied = last in COPIES and any(prod(each.shape) > first.numel() for each in operation.outputs)
    if not is_copied and last not in LAYERS:
        return None
    roles = (*["place"] * (first.ndim - 1), "feature")
    return tokens(tuple(first.shape), roles, LEARNED + operation.inputs[0].number)
