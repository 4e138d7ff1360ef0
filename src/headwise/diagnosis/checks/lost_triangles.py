"""Lost triangles: a triangle that hides later tokens, and is joined with the padding so that it hides none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from headwise.dataflow import MarkedOp, Run, attentions
from headwise.diagnosis.checks.causal_intent import is_triangle
from headwise.diagnosis.checks.padding import changed_tokens
from headwise.diagnosis.checks.token_tables import table_paddings
from headwise.diagnosis.checks.visible_pairs import pattern_of
from headwise.diagnosis.examination import Examination
from headwise.diagnosis.padding_tokens import Padding, is_called_padding, meets_scores, paddings
from headwise.diagnosis.repair import Repair
from headwise.diagnosis.suspects import Suspect

__all__ = ["lost_triangles"]

# what joins two masks, and what joins them the other way
EITHER, BOTH = torch.logical_or, torch.logical_and
JOINS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    **dict.fromkeys(("__or__", "bitwise_or", "logical_or", "add"), BOTH),
    **dict.fromkeys(("__and__", "bitwise_and", "logical_and", "mul"), EITHER),
}


@dataclass(frozen=True)
class _SwappedJoin:
    """Stands in for what joins two masks: joins them the other way."""

    function: Callable[..., Any]
    join: Callable[[Tensor, Tensor], Tensor]

    def __call__(self, first: Tensor, second: Tensor, *_: Any, **__: Any) -> Tensor:
        kind = torch.result_type(first, second)
        return self.join(first, second).to(kind)


def lost_triangles(exam: Examination, free: Run) -> list[Suspect]:
    """What joins a triangle with the padding of tokens so that, where nothing is padding, all tokens are seen.

    In a run in which the two are joined the other way tokens look back only. A prefix may be seen by all on purpose, so
    that what the triangle meets must be padding by the words of the code or the table of the same tokens.
    """
    for padding in paddings(free):
        join = _join(free, padding)
        if join is None or not meets_scores(free, join):
            continue
        if padding.number not in table_paddings(free, padding) and not is_called_padding(padding.entry, padding.name):
            continue
        bare = exam.run(plan=exam.free, change=changed_tokens(exam, padding, lambda tokens: tokens))
        stand_ins = {join.site: _SwappedJoin(join.function, JOINS[join.last])}
        repaired = exam.run(stand_ins, plan=exam.free, change=changed_tokens(exam, padding, lambda tokens: tokens))
        if _is_lost(bare, repaired):
            return [Suspect("causal-missing", join.span, Repair(stand_ins))]
    return []


def _join(run: Run, padding: Padding) -> MarkedOp | None:
    """The first operation that joins a triangle with what is made of a comparison of tokens; None: none does."""
    numbers = set(padding.entry.results)
    for op in run.seen[padding.entry.at + 1 :]:
        if not numbers & op.taken:
            continue
        if any(marks is not None and marks.kind == "pair" for marks in op.output_marks):
            continue
        others = [tensor.value for tensor in op.unmarked_inputs if tensor.number not in numbers]
        if op.last in JOINS and len(op.args) == len(op.inputs) == 2 and others:
            square = others[0]
            if square is not None and square.ndim > 1 and is_triangle(square):
                return op
        numbers |= op.results
    return None


def _is_lost(run: Run, repaired: Run) -> bool:
    """Whether an attention of a run sees all, and in its repaired run what came before."""
    if run.failure is not None or repaired.failure is not None:
        return False
    for first, second in zip(attentions(run), attentions(repaired), strict=False):
        visible, kept = pattern_of(first), pattern_of(second)
        if visible is None or kept is None or visible.shape != kept.shape or first.context.span != second.context.span:
            continue
        is_square = len(visible) == visible.shape[-1] and len(visible) > 2
        if is_square and bool(visible.all()) and torch.equal(kept, torch.ones_like(kept).tril()):
            return True
    return False
