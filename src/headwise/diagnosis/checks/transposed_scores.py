"""Transposed scores: scores with keys as rows and queries as columns, and products that take them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headwise.calls import call_role
from headwise.dataflow import Run, attentions, is_scores
from headwise.diagnosis.checks.inputs import makings
from headwise.diagnosis.examination import Examination
from headwise.diagnosis.repair import Repair
from headwise.diagnosis.suspects import Suspect
from headwise.recording import Operation

__all__ = ["PRODUCTS", "crossed_suspects", "takes_weights", "told_once", "transposed_scores"]

PRODUCTS = frozenset({"matmul", "__matmul__", "bmm", "baddbmm", "einsum", "mm", "__rmatmul__"})


def takes_weights(run: Run, operation: Operation | None) -> bool:
    """Whether an operation is a product that takes the scores or the weights of queries and keys."""
    if operation is None or operation.last not in PRODUCTS:
        return False
    marks = [run.marks.get(tensor.number) for tensor in operation.inputs]
    return any(each is not None and each.kind == "pair" for each in marks)


def told_once(exams: Sequence[Examination]) -> list[Examination]:
    """Examinations that do not say that cross-attention fails, at a line where something else is wrong of
    self-attention too.
    """
    lines = {
        suspect.span.line for exam in exams for suspect in exam.suspects if suspect.kind != "raises" and suspect.span
    }
    return [
        exam.with_suspects(
            suspect for suspect in exam.suspects
            if suspect.kind != "raises" or not suspect.span or suspect.span.line not in lines
        ) if exam.plan.setting == "cross" else exam
        for exam in exams
    ]  # fmt: skip


def transposed_scores(run: Run, failed: Operation, exam: Examination, values: dict[str, object]) -> Suspect | None:
    """Scores whose last two axes are keys and queries, where the product with the values runs once they change places.

    It fits by chance where there are as many keys as queries.
    """
    if not takes_weights(run, failed):
        return None
    entry = next((op for op in reversed(run.seen) if is_scores(op)), None)
    if entry is None:
        return None
    stand_ins = {entry.site: _mirrored(entry.function)}
    repeated = exam.run(stand_ins)
    shape = () if repeated.failure is not None or repeated.output is None else tuple(repeated.output.shape)
    # a token for every query, and for no key
    if run.sizes.get("L") not in shape or run.sizes.get("S") in shape:
        return None
    return Suspect("scores-transposed", entry.span, Repair(stand_ins), values=values)


def crossed_suspects(run: Run) -> list[Suspect]:
    """Scores with a row for each entry of the argument for keys, and a column for each of that for queries.

    With as many of both no axis tells it. Of two inputs either may be asked, so values need an argument of their own.
    Where another attention takes them as they are called, both sides choose among each other.
    """
    out = []
    for attention in attentions(run):
        made = makings(run, attention)
        roles = {side: call_role(made[side].source or "") for side in "qkv" if side in made}
        if attention.scores is None or roles != {"q": "key", "k": "query", "v": "value"}:
            return []
        scores = attention.scores
        out.append(Suspect("scores-transposed", scores.span, Repair({scores.site: _mirrored(scores.function)})))
    return out[:1]


def _mirrored(function: Callable[..., Any]) -> Callable[..., Any]:
    """A product whose result has its last two axes in the other order."""
    return lambda *args, **options: function(*args, **options).transpose(-1, -2)
