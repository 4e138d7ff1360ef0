"""Wrapped windows: tokens that a roll brings into one window from opposite edges, and that see each other there."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from headwise.dataflow import AttentionOps, MarkedOp, Run, attentions, chain_of, find_pattern, made_from, place_of
from headwise.diagnosis.checks.head_layout import sides
from headwise.diagnosis.checks.whole_models import words_of
from headwise.diagnosis.repair import Hiding, HidingBeside, Repair
from headwise.diagnosis.suspects import Suspect
from headwise.recording import Site

__all__ = ["wrapped_windows"]

# for each axis that stays rolled, where each place was in it, and where it is
Axes = dict[int, tuple[Tensor, Tensor]]
# what gives each sample the masks of all windows
COPIES = frozenset({"repeat", "repeat_interleave", "expand", "tile", "reshape", "view", "flatten"})
FUSED = "scaled_dot_product_attention"
REPEATS = frozenset({"repeat", "repeat_interleave", "tile"})
# what has no edges: tokens of both sides are neighbours
ENDLESS = re.compile(r"periodic|panoram|longitud|spher(e|ic)|tor(us|oid)|equirect|globe|earth|weather", re.IGNORECASE)


def wrapped_windows(run: Run) -> list[Suspect]:
    """An attention within windows of rolled tokens in which tokens of opposite edges see each other (Liu et al. 2021,
    arXiv:2103.14030, section 3.2: a mask keeps them apart).
    """
    before = 0
    for attention in attentions(run):
        rolls = [op for op in run.seen[before : attention.context.at] if op.last == "roll"]
        before = attention.context.at
        axes = _rolled_axes(rolls)
        sight = find_pattern(attention) if axes else None
        places = max((len(orders[0]) for orders in axes.values()), default=0)
        if (
            sight is None
            or sight.weights.shape[-1] >= places
            or bool((sight.source != sight.source.flatten()[0]).any())
        ):
            # where all see all, a roll brings nobody together
            continue
        reach = 0 if _are_queries_rolled(run, attention, rolls) else _reach(rolls)
        is_wrapped = partial(_is_far, reach=reach) if reach else _is_wrapped
        wrapped = is_wrapped(sight.row, sight.column, axes)
        if bool((sight.visible & wrapped).any()) and not ENDLESS.search(words_of(type(run.target))):
            is_exchanged = _are_alike(sight.visible, ~wrapped)
            made = _mask_of(run, attention, is_exchanged=is_exchanged)
            entry = made or (_repeated(run, attention) if is_exchanged else None) or _last(attention)
            return [
                Suspect("windows-wrapped", entry.span, Repair(_stand_ins(attention, axes, is_wrapped), is_local=True))
            ]
    return []


def _rolled_axes(rolls: Sequence[MarkedOp]) -> Axes:
    out: Axes = {}
    for entry in rolls:
        marks = entry.output_marks[0] if entry.output_marks else None
        args, options = entry.rules
        dims = options.get("dims", args[2] if len(args) > 2 else None)
        if marks is None or marks.kind != "token" or dims is None:
            continue
        place = place_of(marks.arrays["t"])
        for axis in (dim % place.ndim for dim in (dims if isinstance(dims, tuple | list) else [dims])):
            out.pop(axis, None)
            now = torch.arange(place.shape[axis]).reshape([-1 if at == axis else 1 for at in range(place.ndim)])
            now, was = now.expand_as(place), place.argsort(axis).argsort(axis)
            orders = [_by_place(place, each) for each in (was, now)]
            if not torch.equal(was, now) and orders[0] is not None and orders[1] is not None:
                out[axis] = orders[0], orders[1]
    return out


def _by_place(place: Tensor, coordinate: Tensor) -> Tensor | None:
    """The coordinate of each place; None: one has several, or is unknown."""
    if bool((place < 0).any()):
        return None
    out = torch.zeros(int(place.max()) + 1, dtype=torch.int64)
    out[place.flatten()] = coordinate.flatten()
    return out if torch.equal(out[place], coordinate) else None


def _are_queries_rolled(run: Run, attention: AttentionOps, rolls: Sequence[MarkedOp]) -> bool:
    """Whether queries are rolled as keys are, and not beside keys that are brought to them from other windows."""
    queries = [side for side in sides(attention) if side.name == "q"]
    return any(entry in rolls for side in queries for entry in chain_of(run, side.entry, side.operand))


def _reach(rolls: Sequence[MarkedOp]) -> int:
    """How far the furthest of some rolls goes along its axis."""
    moved = [pair for entry in rolls for pair in _rolled_axes([entry]).values()]
    return max((int((now - was).abs().min()) for was, now in moved), default=0)


def _is_far(row: Tensor, column: Tensor, axes: Axes, *, reach: int) -> Tensor:
    """Whether two places lie further from each other than rolls go, by which keys alone come to other places."""
    return torch.stack([(was[row] - was[column]).abs() > reach for was, _ in axes.values()]).any(dim=0)


def _is_wrapped(row: Tensor, column: Tensor, axes: Axes) -> Tensor:
    """Whether two places lie otherwise from each other than before the roll."""
    apart = [(was[row] - was[column]) != (now[row] - now[column]) for was, now in axes.values()]
    return torch.stack(apart).any(dim=0)


def _are_alike(visible: Tensor, wanted: Tensor) -> bool:
    """Whether windows hide what others of them should: each has the mask of another."""
    have, need = (torch.unique(pairs.flatten(1).int(), dim=0, return_counts=True) for pairs in (visible, wanted))
    return all(map(torch.equal, have, need))


def _mask_of(run: Run, attention: AttentionOps, *, is_exchanged: bool) -> MarkedOp | None:
    """The operation that made the numbers of the mask of scores, or laid them out anew for all samples where each
    window has that of another; None: they have none, or a bias that is learned.
    """
    learned = {id(each) for each in run.target.parameters()} if isinstance(run.target, nn.Module) else set()
    for entry in (op for op in reversed(attention.path) if op.joint is None):
        chain = list(made_from(run, [entry]))
        if chain and not any(id(each) in learned for maker in chain for each in maker.tensors):
            copies = [*_splits(attention, entry), *(maker for maker in chain if maker.last in COPIES)]
            copy = next(iter(copies), None) if is_exchanged else None
            return copy or next((maker for maker in chain if not maker.is_movement), entry)
    return None


def _last(attention: AttentionOps) -> MarkedOp:
    return attention.softmax or attention.context


def _repeated(run: Run, attention: AttentionOps) -> MarkedOp | None:
    """What gives each sample the masks of all windows before torch's own attention takes them; None: nothing does."""
    chain = made_from(run, [attention.context]) if attention.fused else ()
    return next((maker for maker in chain if maker.last in REPEATS), None)


def _splits(attention: AttentionOps, entry: MarkedOp) -> list[MarkedOp]:
    """What lays the scores of all samples and windows out in two axes for the operation that adds the mask."""
    return [
        op
        for op in reversed(attention.path)
        if op.at < entry.at and op.last in COPIES and len(op.outputs[0].shape) > len(op.inputs[0].shape)
    ][:1]


def _stand_ins(
    attention: AttentionOps, axes: Axes, is_wrapped: Callable[..., Tensor]
) -> dict[Site, Callable[..., Any]]:
    """The softmax, or torch's own attention, with tokens of opposite edges hidden from each other."""
    softmax, entry = attention.softmax, attention.context
    if attention.fused and entry.last == FUSED and all(marks is not None for marks in entry.given[:2]):
        q, k = (marks.arrays["t"][..., 0] for marks in entry.given[:2] if marks is not None)
        row, column = place_of(q)[..., None].broadcast_to(*q.shape, k.shape[-1]), place_of(k)[..., None, :]
        column = column.broadcast_to(row.shape)
    elif softmax is not None and (marks := softmax.given[0]) is not None and marks.kind == "pair":
        row, column = (place_of(marks.arrays[name]) for name in (attention.looks, attention.keys))
    else:
        return {}
    if bool((row < 0).any() or (column < 0).any()):
        return {}
    is_open = ~is_wrapped(row, column, axes)
    if softmax is None:
        return {entry.site: HidingBeside(entry.function, is_open)}
    return {softmax.site: Hiding(softmax.function, is_open)}
