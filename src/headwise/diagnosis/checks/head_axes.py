"""Head axes: heads that are split but never brought before the tokens, and heads that are merged before these."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any, NamedTuple

from torch import Tensor, nn

from headwise.dataflow import LAYERS, AttentionOps, MarkedOp, Marks, Run, attentions, chain_of, place_of
from headwise.diagnosis.checks.head_layout import LayoutProblem, Side, layout_problems, sides
from headwise.diagnosis.checks.output_layout import leaving
from headwise.diagnosis.patches.movements import Move, swapped
from headwise.diagnosis.repair import Repair
from headwise.diagnosis.suspects import Suspect
from headwise.recording import Site
from headwise.source import Span

__all__ = ["Rerun", "early_merge", "handed", "movements_of", "taken_problems", "untransposed_heads"]

Rerun = Callable[[dict[Site, Callable[..., Any]]], Run]
# (batch, heads, tokens, head_dim), and how heads and tokens change places
HEADED, SWAPPED = 4, (0, 2, 1, 3)
# where heads stand, counted from the last axis: before the features, or before what several projections are stacked on
HEADS_AT = (2, 3)
# what nn.MultiheadAttention.forward calls its first three arguments
NAMES = {"q": "query", "k": "key", "v": "value"}


class Merge(NamedTuple):
    """A merge before which heads and tokens should change places. move: how it should go, for those who write it."""

    span: Span
    stand_ins: dict[Site, Callable[..., Any]]
    move: Move


def movements_of(run: Run, side: Side) -> list[MarkedOp]:
    """The movements that led to an operand, since it was last computed."""
    out: list[MarkedOp] = []
    for entry in chain_of(run, side.entry, side.operand):
        if entry.joint is not None:
            out = []
        elif entry.is_movement and len(entry.outputs) == 1:
            out.append(entry)
    return out


def untransposed_heads(
    run: Run, rerun: Rerun, attention: AttentionOps, number: int, known_problems: list[LayoutProblem]
) -> Suspect | None:
    """That each token attends to its own heads, as these were never brought before the tokens; None: that is not all.

    A merge that fits heads behind tokens is put right with it: one mistake, one finding.
    """
    splits = _splits(run, attention, known_problems)
    ways = (_swaps(splits, place) for place in HEADS_AT) if splits else ()
    return next((suspect for way in ways if (suspect := _suspect(run, rerun, way, number)) is not None), None)


# the split of each operand, and its axes in the order in which heads and tokens have changed places
Swaps = list[tuple[MarkedOp, tuple[int, ...]]]


def _suspect(run: Run, rerun: Rerun, swaps: Swaps, number: int) -> Suspect | None:
    """The finding where swaps bring tokens together; None: they do not, or the output is of another shape then."""
    stand_ins = {split.site: _permuted(split.function, order) for split, order in swaps}
    result = rerun(stand_ins) if swaps else None
    now = [] if result is None else attentions(result)
    if result is None or len(now) <= number or taken_problems(now[number]):
        return None
    splits = tuple(dict.fromkeys((split.span, order) for split, order in swaps))
    is_merged = result.failure is None and not leaving(result, now[-1])
    if is_merged and result.output is not None and run.output is not None and result.output.shape != run.output.shape:
        return None
    merge = None if is_merged else early_merge(result, lambda more: rerun({**stand_ins, **more}))
    together = stand_ins if merge is None else {**stand_ins, **merge.stand_ins}
    span = swaps[0][0].operation.span
    rewriting = partial(swapped, splits=splits, merge=merge and (merge.span, merge.move))
    return Suspect("attention-over-heads", span, Repair(together, rewriting=rewriting))


def _splits(run: Run, attention: AttentionOps, known_problems: list[LayoutProblem]) -> list[MarkedOp]:
    """The movements that split the heads of the operands, each once; []: that of one is not known."""
    out: dict[int, MarkedOp] = {}
    for problem in known_problems:
        side = next(each for each in handed(attention) if each.name == problem.side)
        split = next((each for each in movements_of(run, side) if _adds_axes(each)), None)
        if split is None:
            return []
        out[split.at] = split
    return list(out.values())


def _adds_axes(entry: MarkedOp) -> bool:
    return len(entry.outputs[0].shape) > len(entry.inputs[0].shape)


def _swaps(splits: list[MarkedOp], place: int) -> Swaps:
    """The splits with heads and tokens in each other's place; []: in one of them heads cannot stand there.

    place: where heads stand, counted from the last axis.
    """
    out: Swaps = []
    for split in splits:
        marks = split.output_marks[0] if split.output_marks else None
        rank = len(split.outputs[0].shape)
        tokens = None if marks is None or marks.kind != "token" else _token_axis(marks)
        heads = rank - place
        if tokens is None or heads <= tokens or rank < HEADED:
            return []
        order = list(range(rank))
        order[tokens], order[heads] = heads, tokens
        out.append((split, tuple(order)))
    return out


def _token_axis(marks: Marks) -> int | None:
    places = place_of(marks.arrays["t"])
    return next((axis for axis in range(places.ndim) if bool((places.diff(dim=axis) != 0).any())), None)


def early_merge(run: Run, rerun: Rerun) -> Merge | None:
    """The first merge after the last attention of a run with which the output is right once heads and tokens change
    places before it; None: there is none.
    """
    all_attentions = attentions(run)
    after = [op for op in run.seen if all_attentions and op.at > all_attentions[-1].context.at]
    for entry in (op for op in after if op.is_movement):
        before, output = entry.inputs[0].shape, entry.outputs[0].shape
        if len(before) != HEADED or len(output) >= len(before) or prod(before) != prod(output):
            continue
        stand_ins = {entry.site: _after_swap(entry.function)}
        repeated = rerun(stand_ins)
        if repeated.failure is None and not leaving(repeated, attentions(repeated)[-1]):
            cuts = (1,) * (len(output) - 1) + (len(before) - len(output) + 1,)
            move = Move(tuple(before), tuple(before), SWAPPED, tuple(output), cuts)
            return Merge(entry.span, stand_ins, move)
    return None


def _permuted(function: Callable[..., Any], order: tuple[int, ...]) -> Callable[..., Any]:
    return lambda *args, **options: function(*args, **options).permute(order)


def _after_swap(function: Callable[..., Any]) -> Callable[..., Any]:
    """A movement of a tensor whose heads and tokens change places first."""
    return lambda *args, **options: function(args[0].permute(SWAPPED), *args[1:], **options)


def handed(attention: AttentionOps) -> list[Side]:
    """The operands of an attention; of a layer of torch's, which splits heads by itself, what it was called with."""
    entry = attention.context
    if not attention.fused or entry.last not in LAYERS:
        return sides(attention)
    module = entry.args[0] if entry.args else None
    if not isinstance(module, nn.MultiheadAttention):
        return []
    out: list[Side] = []
    for place, (name, word) in enumerate(NAMES.items(), start=1):
        value = entry.args[place] if place < len(entry.args) else entry.options.get(word)
        at = next((at for at, each in enumerate(entry.tensors) if each is value), None)
        marks = None if at is None else entry.given[at]
        recorded = None if at is None else entry.inputs[at].value
        if not isinstance(value, Tensor) or marks is None or marks.kind != "token" or value.ndim not in (2, 3):
            continue
        t, f, x = (
            _rows(module, array)
            for array in (marks.arrays["t"], marks.arrays["f"], value if recorded is None else recorded)
        )
        out.append(Side(name, entry, value, t, f, x))
    return out


def taken_problems(attention: AttentionOps) -> list[LayoutProblem]:
    """What is wrong with what an attention is handed, in order: with its operands, or with a layer's arguments."""
    return layout_problems(attention, handed(attention))


def _rows(module: Any, array: Tensor) -> Tensor:
    """(samples, tokens, features) of an argument, by the layer's batch_first."""
    if array.ndim == 2:
        return array.unsqueeze(0)
    return array if module.batch_first else array.transpose(0, 1)
