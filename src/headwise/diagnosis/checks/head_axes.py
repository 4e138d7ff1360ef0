"""Head axes: heads that are split but never brought before the tokens, and heads that are merged before these."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

from headwise.dataflow import AttentionOps, MarkedOp, Marks, Run, attentions, chain_of, is_movement, place_of
from headwise.diagnosis.checks.head_layout import Breach, Side, leaving
from headwise.diagnosis.checks.layer_inputs import handed, taken_breaches
from headwise.diagnosis.suspects import Suspect
from headwise.recording import Site, site_of
from headwise.source import Span

__all__ = ["Merge", "Rerun", "early_merge", "movements_of", "untransposed_heads"]

Rerun = Callable[[dict[Site, Callable[..., Any]]], Run]
# (batch, heads, tokens, head_dim), and how heads and tokens change places
HEADED, SWAPPED = 4, (0, 2, 1, 3)
# where heads stand, counted from the last axis: before the features, or before what several projections are stacked on
HEADS_AT = (2, 3)


class Merge(NamedTuple):
    """A merge before which heads and tokens should change places. move: how it should go, for those who write it."""

    span: Span
    stand_ins: dict[Site, Callable[..., Any]]
    move: tuple[tuple[int, ...], ...]


def movements_of(run: Run, side: Side) -> list[MarkedOp]:
    """The movements that led to an operand, since it was last computed."""
    out: list[MarkedOp] = []
    for entry in chain_of(run, side.entry, side.operand):
        if entry.joint is not None:
            out = []
        elif is_movement(entry.operation.function) and len(entry.operation.outputs) == 1:
            out.append(entry)
    return out


def untransposed_heads(
    run: Run, rerun: Rerun, attention: AttentionOps, number: int, found: list[Breach]
) -> Suspect | None:
    """That each token attends to its own heads, as these were never brought before the tokens; None: that is not all.

    A merge that fits heads behind tokens is put right with it: one mistake, one finding.
    """
    splits = _splits(run, attention, found)
    ways = (_swaps(splits, place) for place in HEADS_AT) if splits else ()
    return next((each for way in ways if (each := _suspect(run, rerun, way, number)) is not None), None)


# the split of each operand, and its axes in the order in which heads and tokens have changed places
Swaps = list[tuple[MarkedOp, tuple[int, ...]]]


def _suspect(run: Run, rerun: Rerun, swaps: Swaps, number: int) -> Suspect | None:
    """The finding where swaps bring tokens together; None: they do not, or the output is of another shape then."""
    stand_ins = {site_of(split.operation): _permuted(split.function, order) for split, order in swaps}
    done = rerun(stand_ins) if swaps else None
    now = [] if done is None else attentions(done)
    if done is None or len(now) <= number or taken_breaches(now[number]):
        return None
    said: dict[str, object] = {
        "_swapped": tuple(dict.fromkeys((split.operation.span, order) for split, order in swaps))
    }
    is_merged = done.record.failure is None and not leaving(done, now[-1])
    if is_merged and done.output is not None and run.output is not None and done.output.shape != run.output.shape:
        return None
    merge = None if is_merged else early_merge(done, lambda more: rerun({**stand_ins, **more}))
    if merge is not None:
        said["_merge"] = merge.span, merge.move
    together = stand_ins if merge is None else {**stand_ins, **merge.stand_ins}
    span = swaps[0][0].operation.span
    return Suspect("attention-over-heads", span, together, said=said)


def _splits(run: Run, attention: AttentionOps, found: list[Breach]) -> list[MarkedOp]:
    """The movements that split the heads of the operands, each once; []: that of one is not known."""
    out: dict[int, MarkedOp] = {}
    for breach in found:
        side = next(each for each in handed(attention) if each.name == breach.side)
        split = next((each for each in movements_of(run, side) if _adds_axes(each)), None)
        if split is None:
            return []
        out[split.at] = split
    return list(out.values())


def _adds_axes(entry: MarkedOp) -> bool:
    return len(entry.operation.outputs[0].shape) > len(entry.operation.inputs[0].shape)


def _swaps(splits: list[MarkedOp], place: int) -> Swaps:
    """The splits with heads and tokens in each other's place; []: in one of them heads cannot stand there.

    place: where heads stand, counted from the last axis.
    """
    out: Swaps = []
    for split in splits:
        marks = split.made[0] if split.made else None
        rank = len(split.operation.outputs[0].shape)
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
    found = attentions(run)
    after = [each for each in run.seen if found and each.at > found[-1].context.at]
    for entry in (each for each in after if is_movement(each.operation.function)):
        before, made = entry.operation.inputs[0].shape, entry.operation.outputs[0].shape
        if len(before) != HEADED or len(made) >= len(before) or prod(before) != prod(made):
            continue
        stand_ins = {site_of(entry.operation): _after_swap(entry.function)}
        then = rerun(stand_ins)
        if then.record.failure is None and not leaving(then, attentions(then)[-1]):
            cuts = (1,) * (len(made) - 1) + (len(before) - len(made) + 1,)
            return Merge(entry.operation.span, stand_ins, (tuple(before), tuple(before), SWAPPED, tuple(made), cuts))
    return None


def _permuted(function: Callable[..., Any], order: tuple[int, ...]) -> Callable[..., Any]:
    return lambda *args, **options: function(*args, **options).permute(order)


def _after_swap(function: Callable[..., Any]) -> Callable[..., Any]:
    """A movement of a tensor whose heads and tokens change places first."""
    return lambda *args, **options: function(args[0].permute(SWAPPED), *args[1:], **options)
