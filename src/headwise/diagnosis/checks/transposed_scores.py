"""Transposed scores: scores with keys as rows and queries as columns, and products that take them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headwise.dataflow import Run, is_scores
from headwise.diagnosis.suspects import Suspect
from headwise.recording import Operation, site_of

__all__ = ["PRODUCTS", "takes_weights", "tell_once", "transposed_scores"]

PRODUCTS = frozenset({"matmul", "__matmul__", "bmm", "baddbmm", "einsum", "mm", "__rmatmul__"})


def takes_weights(done: Run, operation: Operation | None) -> bool:
    """Whether an operation is a product that takes the scores or the weights of queries and keys."""
    if operation is None or operation.function.rpartition(".")[2] not in PRODUCTS:
        return False
    marks = [done.marks.get(each.number) for each in operation.inputs]
    return any(each is not None and each.kind == "pair" for each in marks)


def tell_once(exams: Sequence[Any]) -> None:
    """Leave out that cross-attention fails, at a line where something else is wrong of self-attention too."""
    known = {each.span.line for exam in exams for each in exam.suspects if each.kind != "raises" and each.span}
    for exam in exams:
        if exam.plan.setting == "cross":
            exam.suspects = [
                each for each in exam.suspects if each.kind != "raises" or not each.span or each.span.line not in known
            ]


def transposed_scores(done: Run, failed: Operation, exam: Any, said: dict[str, object]) -> Suspect | None:
    """Scores whose last two axes are keys and queries, where the product with the values runs once they change places.

    It fits by chance where there are as many keys as queries.
    """
    if not takes_weights(done, failed):
        return None
    entry = next((each for each in reversed(done.seen) if is_scores(each)), None)
    if entry is None:
        return None
    stand_ins = {site_of(entry.operation): _mirrored(entry.function)}
    then = exam.run(stand_ins)
    made = () if then.record.failure is not None or then.output is None else tuple(then.output.shape)
    # a token for every query, and for no key
    if done.sizes.get("L") not in made or done.sizes.get("S") in made:
        return None
    return Suspect("scores-transposed", entry.operation.span, stand_ins, said=said)


def _mirrored(function: Callable[..., Any]) -> Callable[..., Any]:
    """A product whose result has its last two axes in the other order."""
    return lambda *args, **options: function(*args, **options).transpose(-1, -2)
