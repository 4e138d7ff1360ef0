"""Rotary: whether rotary positions leave scores that depend on the distance alone, and values untouched."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

from torch import Tensor

from headwise.dataflow import AttentionOps, MarkedOp, Run, attentions, chain_of, place_of
from headwise.diagnosis.checks.alike_tokens import AllAlike, is_table
from headwise.diagnosis.checks.head_layout import Side, sides
from headwise.diagnosis.checks.rotary_axis import axis_of, turned_otherwise
from headwise.diagnosis.checks.rotary_distances import NEAR, depends_on_distance, first_place
from headwise.diagnosis.checks.rotary_repair import JOINTS, mended_turn, untouched
from headwise.diagnosis.patches.rotary import RotationPath, resigned, rotated
from headwise.diagnosis.repair import Repair
from headwise.diagnosis.suspects import Suspect
from headwise.recording import Site
from headwise.source import Span

__all__ = ["called", "rotating_suspects"]

# by what a width is divided whose halves are of pairs
QUARTERS = 4


def rotating_suspects(run: Run, rerun: Callable[..., Run]) -> list[Suspect]:
    """What is wrong with a rotation by position, seen where all tokens are alike."""
    alike = AllAlike.of(run.plan)
    run = rerun(more_change=alike)
    if run.failure is not None or not _are_places_first(run):
        return []
    others = {
        name: tensor for name, tensor in run.named.items() if name not in run.argument_marks and name != run.plan.mask
    }
    tables = [name for name, tensor in others.items() if is_table(name, tensor)]
    if any(
        (tensor.is_floating_point() or tensor.is_complex()) and name not in tables for name, tensor in others.items()
    ):
        # angles that it is called with are random numbers here
        return []
    for number, attention in enumerate(attentions(run)):
        turned = {side.name: _turns(run, side.entry, side.operand) for side in sides(attention)}
        if not any(turned.get(name) for name in "qk"):
            continue
        if (misplaced := turned_otherwise([*turned.get("q", []), *turned.get("k", [])])) is not None:
            return [Suspect("rotary-axis", called(misplaced), Repair(is_local=True), proved=True)]
        # before the patches of an image there may be class tokens, at no place of it
        is_image = {"h", "w"} <= run.sizes.keys()
        first = min(map(first_place, chain.from_iterable(turned.values()))) if is_image else 0
        distances = depends_on_distance(attention, first)
        values = next((side for side in sides(attention) if side.name == "v"), None)
        spun = [turn for turn in turned.get("v", []) if turn.change is None]
        if values is not None and spun and _differs(values):
            right = [*turned.get("q", []), *turned.get("k", [])]
            still = _unturned(spun, right)
            lacking = next((name for name in "qk" if not turned.get(name)), "")
            way = _way(attention, spun, lacking) if lacking else None
            repair = Repair(still, rewriting=partial(rotated, way=way))
            return [Suspect("rotary-on-values", _apart(spun[-1], right), repair)]
        if distances is False and (not tables or not all(turned.get(name) for name in "qk")):
            # how pairs and signs stand in a table that it is called with is its caller's choice
            return [_unlawful(run, number, turned, partial(rerun, more_change=alike), first)]
    return []


def _differs(side: Side) -> bool:
    """Whether like tokens are unlike on one side: what shares memory with keys that were turned may not be turned."""
    along = axis_of(places := place_of(side.t))
    if along is None:
        return True
    places, entries = places.movedim(along, 0), side.x.movedim(along, 0)
    is_token = (places >= 0) & (places[:1] >= 0)
    return bool(((entries - entries[:1]).abs() > NEAR * max(1.0, float(entries.abs().max())))[is_token].any())


def _are_places_first(run: Run) -> bool:
    """Whether tokens lie along the first or the second axis of all that holds some, as `AllAlike` takes it."""
    shapes = [shape for shape in run.plan.call.values() if isinstance(shape, list)]
    return all(
        shape.index(name) < len("BL") for shape in shapes for name in ("L", "S") if name in shape and len(shape) > 1
    )


def _unlawful(
    run: Run, number: int, turned: Mapping[str, list[MarkedOp]], rerun: Callable[..., Run], first: int
) -> Suspect:
    """Scores that depend on more than the distance, and the operation within the rotation that makes them so. first:
    the first token that is turned.
    """
    values = {"segment": "q, k"}
    last = (turned.get("q") or turned.get("k") or [])[-1]
    attention = attentions(run)[number]

    def right(stand_ins: Mapping[Site, Callable[..., Any]]) -> Run | None:
        again = rerun(stand_ins)
        all_attentions = attentions(again)
        is_there = again.failure is None and len(all_attentions) > number
        return again if is_there and depends_on_distance(all_attentions[number], first) is True else None

    def crossed() -> Suspect | None:
        """The turned part of one side that meets the unturned part of the other."""
        for join in _joins(run, attention):
            stand_ins = {join.site: _reversed(join.function)}
            if right(stand_ins):
                return Suspect("rotary-wrong", join.span, Repair(stand_ins), values=values)
        return None

    for lacking, kind in (("q", "rotary-queries-missing"), ("k", "rotary-keys-missing")):
        if not turned.get(lacking):
            if (suspect := crossed()) is not None:
                return suspect
            entries = turned["k" if lacking == "q" else "q"]
            rewriting = partial(rotated, way=_way(attention, entries, lacking))
            return Suspect(kind, called(last), Repair(rewriting=rewriting), home=untouched(last))

    for often, seldom in ((turned["q"], turned["k"]), (turned["k"], turned["q"])):
        spans = list(dict.fromkeys(called(turn) for turn in often))
        second = [turn for turn in often if called(turn) == spans[-1]]
        if len(spans) > len({called(turn) for turn in seldom}) and (still := _unturned(second, [])) and right(still):
            return Suspect("rotary-twice", spans[-1], Repair(still))
    mended = mended_turn(run, number, right)
    guess = "" if _is_wrong_in_quarters(run, number, rerun, first) else "sizes"
    if mended is None:
        # which features make a pair, and how places are counted, nobody says
        return crossed() or Suspect("rotary-wrong", called(last), values=values, guess=guess or "rotation")
    rewriting = partial(resigned, signs=mended[2])
    return Suspect("rotary-wrong", mended[0], Repair(mended[1], rewriting=rewriting), values=values, guess=guess)


def _is_wrong_in_quarters(run: Run, number: int, rerun: Callable[..., Run], first: int) -> bool:
    """Whether scores depend on more than the distance where a quarter of the features is a whole number too."""
    if run.sizes.get("d", QUARTERS) % QUARTERS == 0:
        return True
    again = rerun(sizes=run.plan.bound({**run.sizes, "d": 2 * QUARTERS}))
    all_attentions = [] if again.failure is not None else attentions(again)
    return len(all_attentions) > number and depends_on_distance(all_attentions[number], first) is False


def _joins(run: Run, attention: AttentionOps) -> list[MarkedOp]:
    """The operations that put two parts of a query or of a key side by side."""
    ways = [chain_of(run, side.entry, side.operand) for side in sides(attention) if side.name in "qk"]
    return [
        op for way in ways for op in way
        if op.last in JOINTS and op.args and isinstance(op.args[0], tuple | list) and len(op.args[0]) == len("qk")
    ]  # fmt: skip


def _reversed(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda parts, *args, **options: function(tuple(reversed(parts)), *args, **options)


def _way(attention: AttentionOps, entries: Sequence[MarkedOp], name: str) -> RotationPath | None:
    """From what rotates one side, by these operations, to the scores that it meets the other side in."""
    product = attention.context if attention.fused else attention.scores
    side = next((each for each in sides(attention) if each.name == name), None)
    if product is None or side is None:
        return None
    operation, last = product.operation, entries[-1].operation
    place = next((at for at, each in enumerate(product.tensors) if each is side.operand), None)
    meets, turns = (*operation.chain, operation.span), (*last.chain, last.span)
    return None if place is None else RotationPath(place, meets, turns, tuple(dict.fromkeys(map(called, entries))))


def _unturned(entries: Sequence[MarkedOp], others: Sequence[MarkedOp]) -> dict[Site, Callable[..., Any]]:
    """What leaves a tensor as it was, in place of its products with cosines and sines; {}: the same operations turn
    others, or it is not known which is which.
    """
    sites = {op.site for op in others}
    out: dict[Site, Callable[..., Any]] = {}
    for entry in entries:
        site, marks = entry.site, entry.output_marks[0]
        at = next(place for place, each in enumerate(entry.given) if each is None)
        value = entry.inputs[at].value
        if site in sites or marks is None or marks.kind != "token" or value is None:
            return {}
        first = value.expand(marks.shape)[place_of(marks.arrays["t"]) == 0]
        if not first.numel() or bool((first - first.flatten()[0]).abs().max() > NEAR):
            return {}
        share = float(first.flatten()[0].real)
        if min(abs(share), abs(share - 1)) > NEAR:
            return {}
        out[site] = _times(1 - at, round(share))
    return out


def _times(place: int, factor: int) -> Callable[..., Any]:
    return lambda *args, **_: args[place] * factor


def _apart(entry: MarkedOp, others: Sequence[MarkedOp]) -> Span:
    """Where a rotation was asked for that is one too many: the first call on its way that no other took."""
    ways = [(*each.operation.chain, each.span) for each in others]
    way = (*entry.operation.chain, entry.span)
    shared = max((_common(way, each) for each in ways), default=0)
    return way[min(shared, max(0, len(way) - 2))]


def _common(way: Sequence[Span], span: Sequence[Span]) -> int:
    """How many calls two ways begin with alike."""
    return next((at for at, (a, b) in enumerate(zip(way, span, strict=False)) if a != b), min(len(way), len(span)))


def called(entry: MarkedOp) -> Span:
    """Where a rotation was asked for: the call of the person's function that turns, which turns others rightly."""
    operation = entry.operation
    return operation.chain[-1] if operation.chain else operation.span


def _turns(run: Run, entry: MarkedOp, operand: Tensor) -> list[MarkedOp]:
    """The products with cosines and sines on the way to an operand, since it was projected."""
    way = chain_of(run, entry, operand)
    last = max((place for place, each in enumerate(way) if each.joint is not None), default=-1)
    out, is_complex = [], False
    for op in way[last + 1 :]:
        if op.name not in ("*", "mul", "*=", "mul_"):
            continue
        for value in (tensor.value for tensor in op.unmarked_inputs):
            if value is not None and value.numel() > 1 and _is_circular(value):
                out.append(op)
                is_complex |= value.is_complex()
    # a cosine alone turns nothing
    return out if is_complex or len(out) > 1 else []


def _is_circular(value: Tensor) -> bool:
    """Whether numbers may be cosines, sines, or unit complex numbers that differ from place to place."""
    if value.is_complex():
        return bool(((value.abs() - 1).abs() < NEAR).all()) and not bool((value == value.flatten()[0]).all())
    flat = value.double()
    return bool((flat.abs() <= 1 + NEAR).all()) and flat.std().item() > NEAR and flat.ndim > 1
