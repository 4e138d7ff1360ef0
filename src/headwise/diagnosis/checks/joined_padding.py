"""Joined padding: which operation joins hidden tokens with the others, or divides what is joined by their number."""

from __future__ import annotations

from collections.abc import Iterable

from headwise.dataflow import Run
from headwise.diagnosis.divergence import Divergence, Left
from headwise.recording import Operation
from headwise.source import Span

__all__ = ["is_mask", "pooled_at", "right_elsewhere"]

# what joins the tokens of a sample
POOLS = frozenset({
    "sum", "mean", "max", "amax", "logsumexp", "avg_pool1d", "max_pool1d", "adaptive_avg_pool1d",
    "adaptive_max_pool1d",
})  # fmt: skip
# by which a number of tokens comes in
DIVISIONS = frozenset({"/", "*", "div", "mul", "/=", "*=", "div_", "mul_"})


def pooled_at(divergences: Iterable[Divergence], length: int) -> Span | None:
    """The last place where tokens that are hidden are joined with the others, or their number divides what is joined;
    None: none of them does either. length: of the tokens.
    """
    places = [place for divergence in divergences if (place := _joined_at(divergence, length)) is not None]
    return places[-1] if places else None


def right_elsewhere(run: Run, again: Run, left: Left, place: Span) -> Span | None:
    """The call of a line that joins hidden tokens, where another call joins zeros in their place; None: none does.
    left: the entries of the other tokens in two runs.
    """
    calls: dict[bool, list[Operation]] = {True: [], False: []}
    for first, second in zip(run.record.operations, again.record.operations, strict=False):
        if first.span == place and first.outputs and second.outputs:
            a, b = first.outputs[0].value, second.outputs[0].value
            a, b = (first.inputs[0].value, second.inputs[0].value) if first.last in POOLS else (a, b)
            pair = None if a is None or b is None else left(a, b)
            if a is not None and pair is not None:
                calls[bool((a != 0).sum() == (pair[0] != 0).sum())].append(first)
    wrong = [each.chain[-1] for each in calls[False] if each.chain]
    return wrong[0] if wrong and any(each.chain[-1:] != (wrong[0],) for each in calls[True]) else None


def _joined_at(divergence: Divergence, length: int) -> Span | None:
    operation, repeated = divergence.operation, divergence.other
    shapes = [tensor.shape for tensor in (*operation.inputs, *operation.outputs)]
    was_cut = operation.inputs[0].shape != repeated.inputs[0].shape
    is_joined = operation.outputs[0].shape == repeated.outputs[0].shape if was_cut else length not in shapes[-1]
    if operation.last in POOLS and is_joined:
        # where hidden ones were set to a number, it is that which is taken in
        return (divergence.filled or operation).span
    has_mask = is_mask(operation)
    is_counted = operation.name in DIVISIONS and operation.arguments != repeated.arguments
    return operation.span if is_counted and (has_mask or not any(length in shape for shape in shapes)) else None


def is_mask(operation: Operation) -> bool:
    """Whether all that an operation takes is true or false, or 1 or 0."""
    values = [tensor.value for tensor in operation.inputs]
    return all(value is not None and value.numel() > 0 and set(value.unique().tolist()) == {0, 1} for value in values)
