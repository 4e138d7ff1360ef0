"""Unread attentions: those that are computed, and of which nothing reaches what a call gives."""

from __future__ import annotations

import torch
from torch import Tensor

from headwise.dataflow import LAYERS, AttentionOps, Run, attentions
from headwise.diagnosis.suspects import Suspect
from headwise.recording import tensors

__all__ = ["unread_attentions"]


def unread_attentions(run: Run) -> list[Suspect]:
    """The last attention of which neither the weighted sum nor the weights reach any result, beside others that do."""
    read = _read_storages(run)
    all_attentions = attentions(run)
    if read is None or len(all_attentions) < 2:
        return []
    unread = [attention for attention in all_attentions if not _storages_of(attention) & read]
    if not unread or len(unread) == len(all_attentions):
        return []
    context = unread[-1].context
    # where the target calls what attends
    chain = () if context.last in LAYERS else context.operation.chain
    return [Suspect("attention-unread", chain[0] if chain else context.span, proved=True)]


def _storages_of(attention: AttentionOps) -> set[int]:
    """The memory of the scores, the weights and the weighted sum of an attention."""
    entries = (attention.scores, attention.softmax, attention.context)
    return {tensor.storage for entry in entries if entry is not None for tensor in entry.outputs}


def _read_storages(run: Run) -> set[int] | None:
    """The memory that results were made of, followed back through all operations; None: a result is of no operation."""
    results = [tensor.detach() for tensor in tensors(run.record.result)]
    read: set[int] = set()
    for result in results:
        makers = (
            output.storage for entry in reversed(run.record.operations) for output in entry.outputs
            if output.shape == tuple(result.shape) and _is_same(output.value, result)
        )  # fmt: skip
        storage = next(makers, None)
        if storage is None:
            return None
        read.add(storage)
    for operation in reversed(run.record.operations):
        written = {output.storage for output in operation.outputs}
        if written & read:
            read |= {operand.storage for operand in operation.inputs}
    return read if results else None


def _is_same(value: Tensor | None, result: Tensor) -> bool:
    return value is not None and value.dtype == result.dtype and torch.equal(value.nan_to_num(), result.nan_to_num())
