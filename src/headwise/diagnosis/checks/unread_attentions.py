"""Unread attentions: those that are computed, and of which nothing reaches what a call gives."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from headwise.dataflow import AttentionOps, Run, attentions
from headwise.diagnosis.suspects import Suspect
from headwise.recording import tensors
from headwise.source import function_node

__all__ = ["unread_attentions"]

# what reads numbers on the host, or takes the place of the largest
CHOICES = frozenset({"item", "tolist", "__int__", "__bool__", "__index__", "argmax", "topk", "nonzero"})


def unread_attentions(run: Run) -> list[Suspect]:
    """The last attention of which neither the weighted sum nor the weights reach any result, beside others that do."""
    read = None if _is_chosen(run) else _read_storages(run)
    all_attentions = attentions(run)
    if read is None or len(all_attentions) < 2:
        return []
    unread = [attention for attention in all_attentions if not _storages_of(attention) & read]
    if not unread or len(unread) == len(all_attentions):
        return []
    context = unread[-1].context
    # where the target calls what attends
    chain = context.operation.chain
    return [Suspect("attention-unread", chain[0] if chain else context.span, proved=True)]


def _storages_of(attention: AttentionOps) -> set[int]:
    """The memory of the scores, the weights and the weighted sum of an attention."""
    entries = (attention.scores, attention.softmax, attention.context)
    return {tensor.storage for entry in entries if entry is not None for tensor in entry.outputs}


def _read_storages(run: Run) -> set[int] | None:
    """The memory that results were made of, followed back through all operations; None: a result is of no operation."""
    if not _is_plain(run.record.result):
        return None
    results = [tensor.detach() for tensor in tensors(run.record.result)]
    read: set[int] = set()
    for result in (*results, *_kept(run)):
        makers = (
            output.storage for entry in reversed(run.record.operations) for output in entry.outputs
            if output.shape == tuple(result.shape) and _is_same(output.value, result)
        )  # fmt: skip
        storage = next(makers, None)
        if storage is None and any(result is each for each in results):
            return None
        read |= set() if storage is None else {storage}
    for operation in reversed(run.record.operations):
        # what is written in place has no output of its own
        written = {output.storage for output in operation.outputs}
        written |= {operand.storage for operand in operation.inputs if operand.number in operation.writes}
        if written & read:
            read |= {operand.storage for operand in operation.inputs}
    return read if results else None


def _is_plain(result: Any) -> bool:
    """Whether a result is made of tensors and plain values alone, so that all its tensors are seen."""
    if isinstance(result, Mapping):
        return all(map(_is_plain, result.values()))
    if isinstance(result, tuple | list):
        return all(map(_is_plain, result))
    return result is None or isinstance(result, Tensor | int | float | str)


def _kept(run: Run) -> Iterator[Tensor]:
    """The tensors that modules hold after the call, beside their parameters."""
    for module in run.target.modules() if isinstance(run.target, nn.Module) else ():
        yield from module.buffers(recurse=False)
        yield from (value for value in vars(module).values() if isinstance(value, Tensor))


def _is_chosen(run: Run) -> bool:
    """Whether numbers of the run, or the mode, choose what is given: then another call may read it."""
    if any(operation.name.rpartition(".")[2] in CHOICES for operation in run.record.operations):
        return True
    forward = inspect.unwrap(type(run.target).forward) if isinstance(run.target, nn.Module) else None
    tree = None if forward is None else function_node(forward.__code__)
    asked = (node.test for node in ast.walk(tree or ast.Pass()) if isinstance(node, ast.If | ast.IfExp))
    return any("training" in ast.unparse(test) for test in asked)


def _is_same(value: Tensor | None, result: Tensor) -> bool:
    return value is not None and value.dtype == result.dtype and torch.equal(value.nan_to_num(), result.nan_to_num())
