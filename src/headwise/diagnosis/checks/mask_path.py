"""Mask path: where a mask is brought to scores, and where what is wrong with it came into it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import torch

from headwise.dataflow import SUMS, AttentionOps, MarkedOp, Run, attentions, made_from
from headwise.diagnosis.padding_tokens import speaks_of_padding
from headwise.source import Span, fill_of, made_at

__all__ = [
    "arranged",
    "has_keys_first",
    "home_of",
    "is_along_queries",
    "is_counted",
    "is_of_fewer",
    "nudges",
    "reached_by",
    "uses",
]

# what makes of a mask the numbers that are added to scores
MOVES = frozenset({"pad", "roll", "cat", "concat", "concatenate"})
FILLS = frozenset({"*", "*=", "mul", "mul_", "masked_fill", "masked_fill_", "where"})
COPIES = frozenset({"stack", "cat", "concat", "concatenate", "repeat", "tile", "repeat_interleave"})
# a change of scores that hides nothing
LITTLE = 1e-3
# what gives a mask the shape or the kind of something else
SHAPED = frozenset({"expand_as", "view_as", "reshape_as", "type_as"})
# what is true behind a length
BEYOND = frozenset({"<=", "le", ">=", "ge"})
# what makes true of false
TURNS = frozenset({
    "~", "logical_not", "logical_not_", "bitwise_not", "==", "!=", "eq", "ne", "<", "<=", ">", ">=", "lt", "le", "gt",
    "ge", "rsub", "-",
})  # fmt: skip


def _is_spread(entry: MarkedOp, reached: set[int]) -> bool:
    """Whether an operation lays a mask over queries and keys, and no movement does, before it meets the scores."""
    output = [tensor.shape for tensor in entry.outputs]
    inputs = [tensor.shape for tensor in entry.inputs if tensor.number in reached]
    if not output or not inputs or len(entry.inputs) < 2 or entry.is_movement:
        return False
    is_whole = len(output[0]) > 2 and min(output[0][-2:]) > 1
    return is_whole and not entry.is_marked and any(prod(x) < prod(output[0]) for x in inputs)


def home_of(run: Run, kind: str, entry: MarkedOp | None, reached: set[int]) -> Span | None:
    """Where what is wrong with a mask came into it, before it met the scores; None: there."""
    if entry is None:
        return _unread(run, reached) if kind == "mask-ignored" else None
    makers = [op for op in run.seen if op.at < entry.at and not op.is_marked
            and reached & op.taken]  # fmt: skip
    if kind == "mask-weak-fill":
        is_added = entry.name in ("+", "+=", "add", "add_")
        filled = [maker for maker in makers if is_added and maker.name in FILLS]
        if is_added and not filled:
            # what is added as it came
            return None
        place = filled[-1] if filled else entry
        home = made_at(place.span, place.operation.chain, fill_of)
        return home or (place.span if filled else None)
    if kind == "mask-inverted":
        # places below a length are those that are there: what is done with them is wrong
        turned = [maker for maker in makers if maker.name in TURNS and not _counts_places(run, maker)]
        filled = [maker for maker in makers if maker.name in FILLS]
        return (turned or filled)[-1].operation.span if turned or filled else None
    if kind == "mask-ignored":
        return _unread(run, reached)
    if kind == "mask-nan":
        broken = [op for op in makers if any(output.value is not None and bool(output.value.isnan().any())
                                               for output in op.outputs)]  # fmt: skip
        return broken[0].span if broken else made_at(entry.span, entry.operation.chain, fill_of)
    if kind == "mask-shifted":
        moved = [op for op in makers if op.last in MOVES]
        return moved[-1].span if moved else None
    if kind == "mask-broadcast":
        fewer = _fewer(makers)
        # each token of one time has become several, in another order than those that it is for
        more = [op for op in makers if op.last in COPIES and op.outputs and op.inputs[0].number in reached
                and prod(op.outputs[0].shape) > prod(op.inputs[0].shape)]  # fmt: skip
        return fewer[0].span if fewer else more[-1].span if more else None
    return None


def is_of_fewer(run: Run, path: Sequence[MarkedOp]) -> bool:
    """Whether what meets scores on their way was made of a mask of which samples or tokens are lost."""
    reached = reached_by(run)
    first = next((entry for entry in path if uses(entry, reached)), None)
    makers = [] if first is None else made_from(run, [first])
    return bool(_fewer([op for op in makers if not op.is_marked and reached & op.taken]))


def _fewer(makers: Sequence[MarkedOp]) -> list[MarkedOp]:
    """The operations that make fewer entries of a mask, as where all samples become one."""
    lost = [maker for maker in makers if maker.last in SUMS or maker.name == "index"]
    return [op for op in lost if op.outputs and prod(op.outputs[0].shape) < prod(op.inputs[0].shape)]


def _counts_places(run: Run, entry: MarkedOp) -> bool:
    """Whether an operation asks which places are below the lengths that are given, or which are not, as padding is."""
    declared = run.plan.call.get("_mask")
    if not isinstance(declared, Mapping) or declared["means"] != "lengths":
        return False
    return entry.name in ("<", "lt", ">", "gt") or (entry.name in BEYOND and speaks_of_padding(entry.operation.span))


def _unread(run: Run, reached: set[int]) -> Span | None:
    """Where something is made of a mask that nobody reads, and no scores are in it; None: nowhere."""
    read = {tensor.number for entry in run.seen for tensor in entry.inputs}
    for entry in run.seen:
        operation = entry.operation
        results = operation.results
        is_of_mask = bool(reached & operation.taken)
        if is_of_mask and results and not results & read and not entry.is_marked:
            return operation.span
    return None


def is_counted(run: Run) -> bool:
    """Whether a mask is taken from one, negated or compared: it holds ones and zeros then, and is not to be added."""
    reached = reached_by(run)
    return any(entry.name in TURNS and bool(reached & entry.taken) for entry in run.seen if not entry.is_marked)


def reached_by(run: Run) -> set[int]:
    """The numbers of the tensors that a mask led to, but for scores."""
    tensor = run.named.get(run.plan.mask)
    numbers: set[int] = set()
    for entry in run.seen:
        for argument, operand in zip(entry.tensors, entry.inputs, strict=True):
            if argument is tensor:
                numbers.add(operand.number)
        is_alone = not entry.is_marked or entry.last in SHAPED
        if is_alone and numbers & {each.number for each in entry.inputs[: 1 if entry.last in SHAPED else None]}:
            numbers |= entry.results
    return numbers


def uses(entry: MarkedOp, reached: set[int]) -> bool:
    """Whether an operation brings a mask to scores, or to anything that depends on the inputs."""
    if not entry.is_marked or entry.last in SHAPED:
        return False
    return bool(reached & entry.taken)


def is_along_queries(attention: AttentionOps, reached: set[int]) -> bool:
    """Whether a mask meets scores with one entry for all keys of a query, which changes no weight."""
    for entry in attention.path:
        axis = attention.key_axis(entry)
        if not uses(entry, reached) or axis is None or not entry.outputs:
            continue
        behind = len(entry.outputs[0].shape) - axis
        shapes = [tensor.shape for tensor in entry.inputs if tensor.number in reached]
        if any(len(shape) > behind and shape[-behind] == 1 < shape[-behind - 1] for shape in shapes):
            return True
    return False


def has_keys_first(run: Run) -> bool:
    """Whether all scores that a mask meets have the axis of their keys before that of their queries."""
    reached = reached_by(run)
    masked = [each for each in attentions(run) if any(uses(entry, reached) for entry in each.path)]
    axes = [(each.key_axis(each.softmax), each.query_axis(each.softmax)) for each in masked if each.softmax is not None]
    return bool(axes) and all(keys is not None and queries is not None and keys < queries for keys, queries in axes)


def nudges(run: Run, path: Sequence[MarkedOp]) -> bool:
    """Whether a mask changes scores on their way, by next to nothing, so that no weight shows it."""
    reached = reached_by(run)
    for entry in path:
        before = next((tensor.value for tensor in entry.marked_inputs), None)
        output = entry.value
        if not uses(entry, reached) or before is None or output is None or output.shape != before.shape:
            continue
        if output.is_floating_point() and 0 < float((output - before).abs().nan_to_num(nan=1.0).max()) < LITTLE:
            return True
    return False


def _is_of_truths(entry: MarkedOp) -> bool:
    """Whether an operation gives what is true or false, as a mask does that is joined with one of token numbers."""
    return bool(entry.outputs) and entry.outputs[0].dtype == torch.bool


def arranged(run: Run, reached: set[int], kind: str, use: MarkedOp | None) -> Span | None:
    """Where the mask was last given its shape before it met the scores. use: what it met them in."""
    if kind == "mask-repeat-order":
        # what it is joined with is a mask too
        reached = set(reached)
        for entry in run.seen:
            reached |= entry.results if reached & entry.taken and _is_of_truths(entry) else set()
    moves = [
        entry for entry in run.seen[: None if use is None else use.at]
        if (not entry.is_marked or _is_of_truths(entry)) and reached & entry.taken
        and (entry.is_movement or entry.name == "index" or entry.last in COPIES)
    ]  # fmt: skip
    if kind == "mask-repeat-order":
        copies = [move for move in moves if move.last in ("repeat", "tile", "expand", "cat", "repeat_interleave")]
        # repeat_interleave is what samples and heads in the batch want
        copies = [copy for copy in copies if copy.last not in ("repeat_interleave", "expand")] or copies
        # of these the last by which there are more samples
        moves = [copy for copy in copies if copy.outputs[0].shape[:1] > copy.inputs[0].shape[:1]] or copies or moves
    if kind == "mask-axis":
        # a mask that is already over queries and keys keeps its axes, whatever is done with it later
        ends = [entry.at for entry in run.seen if _is_spread(entry, reached)]
        moves = [move for move in moves if not ends or move.at < ends[0]] or moves
    return moves[-1].span if moves else None
