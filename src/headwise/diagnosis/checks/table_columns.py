"""Table columns: whether a table of biases with a column for each head gives every head its own column."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from headwise.dataflow import ADDITIONS, MarkedOp, Run, attentions, made_from
from headwise.diagnosis.suspects import Suspect

__all__ = ["mixed_columns"]

LOOKUPS = frozenset({"embedding", "__getitem__", "index_select"})
VIEWS = frozenset({"view", "reshape", "unflatten"})
# by so much the entries of a column are shifted
STEP = 1.0


@dataclass(frozen=True)
class ShiftedColumn:
    """A stand-in for a lookup that shifts all entries of its first column."""

    function: Callable[..., Any]

    def __call__(self, *args: Any, **options: Any) -> Any:
        rows = self.function(*args, **options).clone()
        rows[..., 0] += STEP
        return rows


def mixed_columns(run: Run, rerun: Callable[..., Run]) -> list[Suspect]:
    """A view after which one column of a table is read by several heads (Liu et al. 2021, arXiv:2103.14030, eq. 4).

    rerun: the same run with stand-ins. Proved by it: one column of the table is shifted, and what is added to the
    scores of more than one head changes.
    """
    if not isinstance(run.target, nn.Module):
        return []
    names = {param.data_ptr(): name for name, param in run.target.named_parameters()}
    for number, addition in enumerate(_additions(run)):
        for lookup, view in _views_of_rows(run, addition):
            shifted = _additions(rerun({lookup.site: ShiftedColumn(lookup.function)}))
            if number < len(shifted) and _heads_changed(addition, shifted[number]) > 1:
                table = next(names[tensor.data_ptr()] for tensor in lookup.tensors if tensor.data_ptr() in names)
                return [Suspect("bias-heads-mixed", view.span, values={"name": table}, proved=True)]
    return []


def _additions(run: Run) -> list[MarkedOp]:
    """The operations of a run that add something to scores."""
    sums: list[MarkedOp] = []
    for attention in attentions(run):
        sums += [attention.context] if attention.fused else [op for op in attention.path if op.name in ADDITIONS]
    return sums


def _views_of_rows(run: Run, addition: MarkedOp) -> Iterator[tuple[MarkedOp, MarkedOp]]:
    """The lookups in a table that make what is added to scores, each with the view that reads its columns, which are
    its last axis, as an axis before two others of tokens.
    """
    made = sorted(made_from(run, [addition]), key=lambda op: op.at)
    for lookup in (op for op in made if op.last in LOOKUPS and op.outputs):
        tables = [tensor for tensor in lookup.tensors if isinstance(tensor, nn.Parameter) and tensor.ndim == 2]
        heads = lookup.outputs[0].shape[-1:]
        if not tables or heads != tuple(tables[0].shape[-1:]):
            continue
        for view in (op for op in made if op.at > lookup.at and op.last in VIEWS and op.outputs):
            before, after = view.inputs[0].shape, view.outputs[0].shape
            if before[-1:] == heads and after[-3:-2] == heads and heads[0] > 1:
                yield lookup, view
                break


def _heads_changed(plain: MarkedOp, shifted: MarkedOp) -> int:
    """In how many heads, the third axis from the end, what is added to scores differs in two runs."""
    for a, b in zip(plain.unmarked_inputs, shifted.unmarked_inputs, strict=False):
        if a.value is None or b.value is None or a.value.ndim < len("hqk") or a.value.shape != b.value.shape:
            continue
        heads: Tensor = (a.value != b.value).movedim(-3, 0).flatten(1).any(dim=1)
        if bool(heads.any()):
            return int(torch.count_nonzero(heads))
    return 0
