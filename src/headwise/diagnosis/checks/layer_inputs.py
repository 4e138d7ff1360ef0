"""Layer inputs: what torch's own attention layer takes as queries, keys and values, sample by sample."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from headwise.dataflow import LAYERS, AttentionOps
from headwise.diagnosis.checks.head_layout import Breach, Side, breaches, sides

__all__ = ["handed", "taken_breaches"]

# what nn.MultiheadAttention.forward calls its first three arguments
NAMES = {"q": "query", "k": "key", "v": "value"}


def handed(attention: AttentionOps) -> list[Side]:
    """The operands of an attention; of a layer of torch's, which splits heads by itself, what it was called with."""
    entry = attention.context
    if not attention.fused or entry.last not in LAYERS:
        return sides(attention)
    module = entry.args[0] if entry.args else None
    if not isinstance(module, nn.MultiheadAttention):
        return []
    out: list[Side] = []
    for place, (name, word) in enumerate(NAMES.items(), start=1):
        value = entry.args[place] if place < len(entry.args) else entry.options.get(word)
        at = next((at for at, each in enumerate(entry.tensors) if each is value), None)
        marks = None if at is None else entry.given[at]
        held = None if at is None else entry.operation.inputs[at].value
        if not isinstance(value, Tensor) or marks is None or marks.kind != "token" or value.ndim not in (2, 3):
            continue
        t, f, x = (
            _rows(module, each) for each in (marks.arrays["t"], marks.arrays["f"], value if held is None else held)
        )
        out.append(Side(name, entry, value, t, f, x))
    return out


def taken_breaches(attention: AttentionOps) -> list[Breach]:
    """What is wrong with what an attention is handed, in order: with its operands, or with a layer's arguments."""
    return breaches(attention, handed(attention))


def _rows(module: Any, array: Tensor) -> Tensor:
    """(samples, tokens, features) of an argument, by the layer's batch_first."""
    if array.ndim == 2:
        return array.unsqueeze(0)
    return array if module.batch_first else array.transpose(0, 1)
