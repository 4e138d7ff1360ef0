"""Mask path: where a mask is brought to scores, and where what is wrong with it came into it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from headwise.dataflow import SUMS, MarkedOp, Run, is_movement
from headwise.source import Span, fill_of, made_at

__all__ = ["arranged", "home_of", "is_counted", "nudges", "reached_by", "uses"]

# what makes of a mask the numbers that are added to scores
FILLS = frozenset({"*", "*=", "mul", "mul_", "masked_fill", "masked_fill_", "where"})
# a change of scores that hides nothing
LITTLE = 1e-3
# what gives a mask the shape or the kind of something else
SHAPED = frozenset({"expand_as", "view_as", "reshape_as", "type_as"})
# what makes true of false
TURNS = frozenset({
    "~", "logical_not", "logical_not_", "bitwise_not", "==", "!=", "eq", "ne", "<", "<=", ">", ">=", "lt", "le", "gt",
    "ge", "rsub", "-",
})  # fmt: skip


def _is_spread(entry: MarkedOp, reached: set[int]) -> bool:
    """Whether an operation lays a mask over queries and keys, and no movement does, before it meets the scores."""
    made = [each.shape for each in entry.operation.outputs]
    given = [each.shape for each in entry.operation.inputs if each.number in reached]
    if not made or not given or len(entry.operation.inputs) < 2 or is_movement(entry.operation.function):
        return False
    is_whole = len(made[0]) > 2 and min(made[0][-2:]) > 1
    return is_whole and all(marks is None for marks in entry.given) and any(prod(x) < prod(made[0]) for x in given)


def home_of(run: Run, kind: str, entry: MarkedOp | None, reached: set[int]) -> Span | None:
    """Where what is wrong with a mask came into it, before it met the scores; None: there."""
    if entry is None:
        return _unread(run, reached) if kind == "mask-ignored" else None
    made = [each for each in run.seen if each.at < entry.at and all(m is None for m in each.given)
            and reached & {t.number for t in each.operation.inputs}]  # fmt: skip
    if kind == "mask-weak-fill":
        is_added = entry.operation.name in ("+", "+=", "add", "add_")
        filled = [each for each in made if is_added and each.operation.name in FILLS]
        if is_added and not filled:
            # what is added as it came
            return None
        place = filled[-1] if filled else entry
        home = made_at(place.operation.span, place.operation.chain, fill_of)
        return home or (place.operation.span if filled else None)
    if kind == "mask-inverted":
        # places below a length are those that are there: what is done with them is wrong
        turned = [each for each in made if each.operation.name in TURNS and not _counts_places(run, each)]
        filled = [each for each in made if each.operation.name in FILLS]
        return (turned or filled)[-1].operation.span if turned or filled else None
    if kind == "mask-ignored":
        return _unread(run, reached)
    if kind == "mask-nan":
        broken = [each for each in made if any(one.value is not None and bool(one.value.isnan().any())
                                               for one in each.operation.outputs)]  # fmt: skip
        return broken[0].operation.span if broken else made_at(entry.operation.span, entry.operation.chain, fill_of)
    if kind == "mask-broadcast":
        # all samples have become one
        lost = [each for each in made if each.last in SUMS or each.operation.name == "index"]
        fewer = [each for each in lost if each.operation.outputs
                 and prod(each.operation.outputs[0].shape) < prod(each.operation.inputs[0].shape)]  # fmt: skip
        return fewer[0].operation.span if fewer else None
    return None


def _counts_places(run: Run, entry: MarkedOp) -> bool:
    """Whether an operation asks which places are below the lengths that are given."""
    said = run.plan.call.get("_mask")
    is_of_lengths = isinstance(said, Mapping) and said["means"] == "lengths"
    return is_of_lengths and entry.operation.name in ("<", "lt", ">", "gt")


def _unread(run: Run, reached: set[int]) -> Span | None:
    """Where something is made of a mask that nobody reads, and no scores are in it; None: nowhere."""
    read = {each.number for entry in run.seen for each in entry.operation.inputs}
    for entry in run.seen:
        operation = entry.operation
        made = {each.number for each in operation.outputs}
        is_of_mask = bool(reached & {each.number for each in operation.inputs})
        if is_of_mask and made and not made & read and all(each is None for each in entry.given):
            return operation.span
    return None


def is_counted(run: Run) -> bool:
    """Whether a mask is taken from one, negated or compared: it holds ones and zeros then, and is not to be added."""
    reached = reached_by(run)
    return any(
        each.operation.name in TURNS and bool(reached & {one.number for one in each.operation.inputs})
        for each in run.seen
        if all(marks is None for marks in each.given)
    )


def reached_by(run: Run) -> set[int]:
    """The numbers of the tensors that a mask led to, but for scores."""
    tensor = run.named.get(run.plan.mask)
    found: set[int] = set()
    for entry in run.seen:
        for own, seen in zip(entry.tensors, entry.operation.inputs, strict=True):
            if own is tensor:
                found.add(seen.number)
        is_alone = all(each is None for each in entry.given) or entry.last in SHAPED
        if is_alone and found & {each.number for each in entry.operation.inputs[: 1 if entry.last in SHAPED else None]}:
            found |= {each.number for each in entry.operation.outputs}
    return found


def uses(entry: MarkedOp, reached: set[int]) -> bool:
    """Whether an operation brings a mask to scores, or to anything that depends on the inputs."""
    if all(each is None for each in entry.given) or entry.last in SHAPED:
        return False
    return bool(reached & {each.number for each in entry.operation.inputs})


def nudges(run: Run, path: Sequence[MarkedOp]) -> bool:
    """Whether a mask changes scores on their way, by next to nothing, so that no weight shows it."""
    reached = reached_by(run)
    for entry in path:
        before = next(
            (t.value for t, m in zip(entry.operation.inputs, entry.given, strict=True) if m is not None), None
        )
        made = entry.operation.outputs[0].value if entry.operation.outputs else None
        if not uses(entry, reached) or before is None or made is None or made.shape != before.shape:
            continue
        if made.is_floating_point() and 0 < float((made - before).abs().nan_to_num(nan=1.0).max()) < LITTLE:
            return True
    return False


def arranged(run: Run, reached: set[int], kind: str) -> Span | None:
    """Where the mask was last given its shape."""
    moves = [
        each for each in run.seen
        if all(m is None for m in each.given) and reached & {t.number for t in each.operation.inputs}
        and (is_movement(each.operation.function) or each.operation.name == "index")
    ]  # fmt: skip
    if kind == "mask-repeat-order":
        copies = [each for each in moves if each.last in ("repeat", "tile", "expand", "cat", "repeat_interleave")]
        # repeat_interleave is what samples and heads in the batch want
        copies = [each for each in copies if each.last not in ("repeat_interleave", "expand")] or copies
        moves = copies or moves
    if kind == "mask-axis":
        # a mask that is already over queries and keys keeps its axes, whatever is done with it later
        ends = [each.at for each in run.seen if _is_spread(each, reached)]
        moves = [each for each in moves if not ends or each.at < ends[0]] or moves
    return moves[-1].operation.span if moves else None
