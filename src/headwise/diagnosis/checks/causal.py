"""Causal: whether an attention that should look back only does, itself included."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from headwise.calls import call_role
from headwise.dataflow import (
    LAYERS,
    NOTHING,
    AttentionOps,
    AttentionPattern,
    MarkedOp,
    Marks,
    Run,
    attentions,
    find_pattern,
    hidden_in_layer,
    is_layer,
    made_from,
    place_of,
)
from headwise.diagnosis.checks.causal_intent import (
    filled_by,
    hides_earlier_alone,
    is_step,
    is_triangle,
    wants_causal,
    wants_causal_of,
)
from headwise.diagnosis.checks.mask_repair import inverted, is_inverted_triangle
from headwise.diagnosis.checks.projection_names import KEYS
from headwise.diagnosis.checks.visible_pairs import pattern_of, visible_pairs
from headwise.diagnosis.repair import Hiding, Repair
from headwise.diagnosis.suspects import Suspect
from headwise.recording import Recalled, Site
from headwise.source import Span, is_left, written_in

__all__ = ["order_suspects"]

# what lays something over scores
LAID = frozenset({"masked_fill", "masked_fill_", "where", "__setitem__", "tril", "triu", "mul", "add", "add_"})
# a score that leaves next to nothing beside one of 0, and from how many scores a rule is read
HIDES, FEW = -9.0, 3
# below it no score of numbers near 1 lies
CLOSED = -1e3


def order_suspects(run: Run) -> list[Suspect]:
    """What is wrong with the order in which tokens see each other, of a run without a mask."""
    for attention in attentions(run):
        sight = find_pattern(attention)
        if sight is None:
            continue
        zeroed = _zeroed(attention)
        if zeroed is not None:
            stand_ins = _stand_ins(attention, zeroed)
            return [Suspect("causal-zeroed", zeroed.span, Repair(stand_ins, is_local=True))]
        allowed = visible_pairs(sight)
        if allowed is None:
            continue
        dropped = _dropped(run)
        wants = dropped is not None or wants_causal(run) or wants_causal_of(run, attention)
        is_window = hides_earlier_alone(run, allowed)
        kind = _kind(allowed, wants=wants or is_window)
        if not kind and sight.weights.shape[-1] > 1:
            late = _hidden_late(attention, sight)
            if late is not None:
                return [Suspect("mask-after-softmax", late.span, Repair(_stand_ins(attention), is_local=True))]
        if kind == "causal-missing" and _is_of_a_memory(run):
            continue
        if kind:
            entry, home = dropped if dropped is not None and kind == "causal-missing" else _closer(attention), None
            if kind != "causal-missing" or is_window:
                maker = _made_by(run, entry)
                home = _home(run, entry, kind) if maker is None else None
                if maker is not None and not (
                    kind == "causal-inverted" and _is_usual(maker.value) and not _is_plainly_closed(entry, maker)
                ):
                    entry = maker
                elif kind == "causal-inverted":
                    entry = filled_by(run, entry) or entry
            return [Suspect(kind, entry.span, Repair(_stand_ins(attention), is_local=True), home=home)]
    return []


def _is_of_a_memory(run: Run) -> bool:
    """Whether keys may come with an argument of their own, of which all is seen, beside tokens that look back."""
    if not any(isinstance(shape, list) and call_role(name) in KEYS for name, shape in run.plan.call.items()):
        return False
    patterns = [pattern_of(attention) for attention in attentions(run)]
    return any(pattern is not None and bool(pattern.any()) and not bool(pattern.triu(1).any()) for pattern in patterns)


def _hidden_late(attention: AttentionOps, sight: AttentionPattern) -> MarkedOp | None:
    """What takes away the weights of later keys when they have had their share; None: no row lost any."""
    softmax = attention.softmax
    value = None if softmax is None else softmax.outputs[0].value
    marks = None if softmax is None or not softmax.output_marks else softmax.output_marks[0]
    if softmax is None or value is None or marks is None or marks.kind != "pair":
        return None
    x, y = place_of(marks.arrays[attention.looks]), place_of(marks.arrays[attention.keys])
    later = (y > x) & (x >= 0) & (y >= 0)
    total = sight.weights.sum(dim=-1)
    future = sight.column > sight.row
    if not bool((value.abs() > NOTHING)[later].any()) or bool((sight.weights.abs() > NOTHING)[future].any()):
        return None
    after = [entry for entry in attention.path if entry.at > softmax.at]
    return after[0] if after and bool(((total - 1).abs() > 1e-3).any()) else None


def _zeroed(attention: AttentionOps) -> MarkedOp | None:
    """What gives all scores of later keys one number that hides nothing, as 0 by which they are multiplied; None: none.

    Beside large scores it takes little weight, beside those below it all: how much of it is seen does not count.
    """
    softmax = attention.softmax
    for entry in attention.path:
        if softmax is None or entry.at >= softmax.at:
            return None
        output = entry.outputs
        if output and _is_level(attention, entry.output_marks[0], output[0].value):
            inputs = softmax.inputs[0].value
            return entry if _is_level(attention, softmax.given[0], inputs) else None
    return None


def _is_level(attention: AttentionOps, marks: Marks | None, value: Tensor | None) -> bool:
    """Whether the scores of all later keys are one number, above what hides, and those of earlier keys are not."""
    if marks is None or marks.kind != "pair" or value is None or not value.is_floating_point():
        return False
    x, y = place_of(marks.arrays[attention.looks]), place_of(marks.arrays[attention.keys])
    if value.shape != x.shape:
        return False
    is_known = (x >= 0) & (y >= 0)
    later, earlier = value[(y > x) & is_known], value[(y < x) & is_known]
    if later.numel() < FEW or earlier.numel() < FEW or not bool(later.isfinite().all()):
        return False
    return bool((later == later[0]).all()) and bool(later[0] > HIDES) and not bool((earlier == earlier[0]).all())


def _kind(visible: Tensor, *, wants: bool) -> str:
    rows, columns = visible.shape
    is_known = visible.any(dim=-1)
    i, j = torch.arange(rows)[:, None], torch.arange(columns)[None, :]

    def is_like(pattern: Tensor) -> bool:
        return bool((visible == pattern)[is_known].all()) and int(is_known.sum()) > 1

    if is_like(torch.ones_like(visible)):
        return "causal-missing" if wants else ""
    if is_like(j <= i) or is_like(j <= i + columns - rows):
        return ""
    for shift in {0, columns - rows}:
        if is_like(j < i + shift) or is_like(j <= i + shift + 1):
            return "causal-offset"
        if is_like(j >= i + shift) or is_like(j > i + shift):
            return "causal-inverted"
    later = (j > i + columns - rows) & is_known[:, None]
    # whatever is hidden of what came before; and of what comes later no block sees what is farther and not what is near
    nearer = (later & ~visible).cumsum(dim=-1) > 0
    is_missing = bool(later.any()) and (bool(visible[later].all()) or bool((later & visible & nearer).any()))
    return "causal-missing" if wants and is_missing else ""


def _dropped(run: Run) -> MarkedOp | None:
    """The operation that hides later keys of scores, or makes the square for it, and whose result nothing takes."""
    taken = {tensor.number for entry in run.seen for tensor in entry.inputs}
    for entry in run.seen:
        marks = [each for each in entry.given if each is not None and each.kind == "pair"]
        if any(output.number in taken for output in entry.outputs) or entry.operation.writes:
            continue
        value = entry.value
        is_square = entry.last in ("tril", "triu") and not marks and value is not None and is_triangle(value)
        if is_square and is_left(entry.span):
            return entry
        if entry.last not in ("masked_fill", "where") or not marks:
            continue
        values = [tensor.value for tensor in entry.unmarked_inputs]
        if any(each is not None and is_triangle(each) for each in values):
            return entry
    return None


def _closer(attention: AttentionOps) -> MarkedOp:
    """The operation that hides keys, or else the one that makes the weights."""
    filling = next((op for op in attention.path if _fills(op)), None)
    if filling is not None:
        return filling
    for entry in attention.path:
        others = [m is None for m in entry.given]
        if entry.last in LAID and any(others):
            return entry
        if entry.last in ("tril", "triu"):
            return entry
    return attention.softmax or attention.scores or attention.context


def _fills(entry: MarkedOp) -> bool:
    """Whether an operation makes some scores next to minus infinity that were not."""
    values = [tensor.value for tensor in entry.marked_inputs]
    inputs = [value for value in values if value is not None and value.is_floating_point()]
    output, before = entry.value, inputs[0] if len(inputs) == 1 else None
    if output is None or before is None or before.shape != output.shape or not output.is_floating_point():
        return False
    return bool(((output < CLOSED) & (before > CLOSED)).any())


def _is_plainly_closed(entry: MarkedOp, maker: MarkedOp) -> bool:
    """Whether what is filled is just what a square marks that the same function made: the square is the wrong one.

    Where it is called by what may be seen, or turned where it is used, what is done with it is wrong.
    """
    code, made_at = entry.span.source, maker.span
    is_here = made_at.function == entry.span.function and made_at.line != entry.span.line
    is_turned = re.search(r"~|==|!=|logical_not|keep|allow|visib|seen|see\b|valid|attend\b|lower|tril|open", code)
    return is_here and entry.last in ("masked_fill", "masked_fill_", *LAYERS) and is_turned is None


def _made_by(run: Run, entry: MarkedOp) -> MarkedOp | None:
    """The operation that gave a mask its triangle; None: it came from outside of the run."""
    names = ("tril", "triu", "tril_", "triu_")
    makers = made_from(run, [entry, *_masks_of(run, entry)])
    return next(
        (op for op in makers
         if op.last in names or (op.name in ("<", "<=", ">", ">=") and is_step(op.value))), None,
    )  # fmt: skip


def _masks_of(run: Run, entry: MarkedOp) -> list[MarkedOp]:
    """The operations on what is true or false of tokens, as of ids that are no padding, that an operation's mask is
    made of.
    """
    out: list[MarkedOp] = []
    numbers = set(entry.taken)
    for op in reversed(run.seen[: entry.at]):
        if numbers & op.results and op.is_marked and op.value is not None and op.value.dtype == torch.bool:
            out.append(op)
            numbers |= op.taken
    return out


def _home(run: Run, entry: MarkedOp, kind: str) -> Span | None:
    """Where a triangle that was made before the run was made; None: what is done with it is wrong."""

    def is_it(value: Any) -> bool:
        if not isinstance(value, Tensor) or value.ndim < 2 or value.shape[-1] != value.shape[-2]:
            return False
        return not (kind == "causal-inverted" and _is_usual(value))

    return written_in(run.target, entry.span, is_it)


def _is_usual(t: Tensor | None) -> bool:
    """Whether a square marks what may be seen, or what may not, as people write it: with the diagonal in the first."""
    if t is None or t.ndim < 2 or t.shape[-1] != t.shape[-2] or t.is_complex():
        return False
    nonzero = t.reshape(-1, *t.shape[-2:])[0] != 0
    every = torch.ones_like(nonzero)
    return bool(torch.equal(nonzero, every.tril()) or torch.equal(nonzero, every.triu(1)))


def _stand_ins(attention: AttentionOps, closer: MarkedOp | None = None) -> dict[Site, Callable[..., Any]]:
    softmax = attention.softmax
    if attention.fused:
        return _fused_stand_ins(attention)
    marks = None if softmax is None else softmax.given[0]
    scores = attention.scores
    if softmax is None or marks is None or marks.kind != "pair" or scores is None:
        return {}
    x, y = place_of(marks.arrays[attention.looks]), place_of(marks.arrays[attention.keys])
    out: dict[Site, Callable[..., Any]] = {softmax.site: Hiding(softmax.function, y <= x)}
    closer = closer or _closer(attention)
    if closer is not softmax and closer is not scores:
        place = next((at for at, each in enumerate(closer.given) if each is not None and each.kind == "pair"), 0)
        out[closer.site] = lambda *args, **options: [
            argument for argument in (*args, *options.values()) if isinstance(argument, Tensor)
        ][place]
    return out


def _fused_stand_ins(attention: AttentionOps) -> dict[Site, Callable[..., Any]]:
    entry, sight = attention.context, find_pattern(attention)
    if is_layer(entry) and sight is not None:
        masks = [each for each, marks in zip(entry.tensors, entry.given, strict=True) if marks is None]
        return hidden_in_layer(entry, sight.column <= sight.row, masks)
    if attention.context.last != "scaled_dot_product_attention":
        return {}
    again = inverted(entry.function) if is_inverted_triangle(entry) else Recalled(entry.function, {"is_causal": True})
    return {entry.site: again}
