"""Joined padding: which operation joins hidden tokens with the others, or divides what is joined by their number."""

from __future__ import annotations

from collections.abc import Iterable

from headwise.diagnosis.divergence import Divergence
from headwise.recording import Operation
from headwise.source import Span

__all__ = ["is_mask", "pooled_at"]

# what joins the tokens of a sample
POOLS = frozenset({
    "sum", "mean", "max", "amax", "logsumexp", "avg_pool1d", "max_pool1d", "adaptive_avg_pool1d",
    "adaptive_max_pool1d",
})  # fmt: skip
# by which a number of tokens comes in
DIVISIONS = frozenset({"/", "*", "div", "mul", "/=", "*=", "div_", "mul_"})


def pooled_at(divergences: Iterable[Divergence], length: int) -> Span | None:
    """The last place where tokens that are hidden are joined with the others, or their number divides what is joined;
    None: none of them does either. length: of the tokens. Where the same line joins others rightly, it is its call.
    """
    joined = [(each, place) for each in list(divergences) if (place := _joined_at(each, length)) is not None]
    if not joined:
        return None
    last, place = joined[-1]
    chain = next((each.chain for each in (last.operation, last.filled) if each and each.span == place), ())
    is_shared = any(each.span == place and each.chain[-1:] != chain[-1:] for each in last.others)
    return chain[-1] if chain and is_shared else place


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
