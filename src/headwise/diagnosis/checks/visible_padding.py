"""Visible padding: whether tokens that a mask hides change what has no such tokens: what is pooled, other queries."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from headwise.calls import Plan
from headwise.dataflow import (
    Run,
    allowed_by,
    attentions,
    axes_of,
    find_pattern,
)
from headwise.diagnosis.checks.joined_padding import pooled_at
from headwise.diagnosis.checks.padding_places import NEAR, crossing, padding_suspects, shown_later
from headwise.diagnosis.distance import distance
from headwise.diagnosis.divergence import Left, divergences, of_hidden, of_shorter
from headwise.diagnosis.padding_tokens import Padding, meets_scores, paddings
from headwise.diagnosis.repair import Change
from headwise.diagnosis.suspects import Suspect

__all__ = ["PADS", "are_apart", "are_hidden", "visible_padding"]

FILLS = frozenset({"masked_fill", "masked_fill_", "where"})
# how many tokens are padding where it is made
PADS = 2
# what a mask is called that hides what is there, and may not be chosen again
CHOSEN = re.compile(
    r"(?:^|_)(?:visited|forbidden|infeasible|unavailable|chosen|picked|taken|tabu|illegal|feasible|legal)(?:$|_)", re.I
)


def visible_padding(plan: Plan, rerun: Callable[..., Run], *, is_sure: bool) -> list[Suspect]:
    """The first operation that brings tokens which a mask of keys hides into what has no such tokens.

    Which is a sum, mean or maximum over tokens, or an attention of the queries of another input. Proved by a run in
    which the hidden tokens alone are others: the output differs. is_sure: it is known what the mask means; where it is
    not, an attention whose pattern is known must have told.
    """
    run: Run = rerun(plan=plan)
    tokens = _hidden_tokens(plan, run)
    if tokens is None:
        return []
    name, letter, hidden = tokens
    axis = _axis_of(plan, name, letter)
    if any(padding.name == name and _hides(run, padding) for padding in paddings(run)):
        # token numbers tell of padding too, and those that the mask hides are no padding by them
        return []
    length = hidden.shape[1]
    # no number of tokens is the other way round
    is_sure = is_sure or plan.call["_mask"]["means"] == "lengths"
    if not is_sure and all(find_pattern(attention) is None for attention in attentions(run)):
        return []

    def changed(where: Tensor) -> Run:
        again: Run = rerun(plan=plan, more_change=_with_others(name, where, axis))
        return again

    again = changed(hidden)
    # what may not be chosen is still there to be pooled
    is_chosen = CHOSEN.search(plan.mask) is not None
    if (place := crossing(run, again, name, is_learned=True)) is not None:
        is_turned = crossing(run, changed(~hidden), name, is_learned=True) is None
        if is_turned and not is_sure:
            return []
        pooled = (
            None
            if is_turned or CHOSEN.search(plan.mask)
            else pooled_at(divergences(run, again, of_hidden(hidden)), length)
        )
        if pooled is not None:
            values = {"how": "hidden", "name": name}
            return [] if is_chosen else [Suspect("padding-pooled", pooled, values=values, proved=True)]
        values = {"name": name, "leak": "100%"}
        return [Suspect("mask-inverted" if is_turned else "padding-attended", place, values=values, proved=True)]
    if suspects := shown_later(run, name, hidden):
        return suspects
    has_tokens = run.output is not None and length in run.output.shape
    if is_chosen:
        return []
    suspects = [] if has_tokens else padding_suspects(run, again, name, of_hidden(hidden), "hidden", length)
    return suspects or _without_padding(plan, rerun, name, letter, length, are_apart(run, again, of_hidden(hidden)))


def _hides(run: Run, padding: Padding) -> bool:
    """Whether what tells padding by its token numbers comes to scores, or to where others are filled, as a mask."""
    if meets_scores(run, padding.entry):
        return True
    numbers = set(padding.entry.results)
    for op in run.seen[padding.entry.at + 1 :]:
        if not numbers & op.taken:
            continue
        if op.last in FILLS:
            return True
        beside = [
            tensor for tensor, operand in zip(op.tensors, op.inputs, strict=True) if operand.number not in numbers
        ]
        if not any(tensor.is_floating_point() for tensor in beside):
            # with no features beside it, it is still a mask
            numbers |= op.results
    return False


def are_hidden(plan: Plan, rerun: Callable[..., Run]) -> bool:
    """Whether a mask of keys is known to keep the tokens that it hides from what comes out for the others."""
    run: Run = rerun(plan=plan)
    tokens = _hidden_tokens(plan, run)
    if tokens is None or run.output is None:
        return False
    name, letter, hidden = tokens
    again: Run = rerun(plan=plan, more_change=_with_others(name, hidden, _axis_of(plan, name, letter)))
    results = None if again.output is None else of_hidden(hidden)(run.output, again.output)
    return results is not None and distance(*results) <= NEAR


def _hidden_tokens(plan: Plan, run: Run) -> tuple[str, str, Tensor] | None:
    """The argument whose tokens the mask of a plan is for, their symbol, and which are hidden, (batch, tokens); None:
    it is no mask of keys, or hides none, or all of a sample.
    """
    declared = plan.call.get("_mask")
    if not isinstance(declared, Mapping) or run.failure is not None or run.output is None:
        return None
    letter = "L" if plan.setting == "self" else "S"
    axes = [str(axis) for axis in declared["shape"] if str(axis) not in ("B", "1")]
    samples, length = run.sizes.get("B", 0), run.sizes.get(letter, 0)
    shapes = {name: _shape(run.named[name], _axis_of(plan, name, letter)) for name in run.argument_marks}
    name = next((name for name, shape in shapes.items() if shape == (samples, length)), "")
    is_of_keys = axes == ([] if declared["means"] == "lengths" else [letter])
    allowed = allowed_by(run, samples, 1, length) if is_of_keys and name else None
    hidden = None if allowed is None else ~allowed[:, 0]
    if hidden is None or not bool(hidden.any()) or bool(hidden.all(dim=-1).any()):
        return None
    return name, letter, hidden


def _axis_of(plan: Plan, name: str, letter: str) -> int:
    """The axis of an argument along which the tokens of a symbol lie, which is the second where nothing says so."""
    axes = axes_of(plan.call.get(name))
    return axes.index(letter) if letter in axes else 1


def _shape(tokens: Tensor, axis: int) -> tuple[int, ...]:
    """How many samples and tokens a tensor has; empty: it has no such axis."""
    return tuple(tokens.movedim(axis, 1).shape[:2]) if 0 < axis < tokens.ndim else ()


def _with_others(name: str, where: Tensor, axis: int) -> Change:
    """A change of the tokens of an argument, which lie along an axis, at some places."""

    def change(_: Any, options: dict[str, Any]) -> None:
        tokens = options.get(name)
        if isinstance(tokens, Tensor):
            options[name] = _others(tokens.movedim(axis, 1), where).movedim(1, axis)

    return change


def _without_padding(
    plan: Plan, rerun: Callable[..., Run], name: str, letter: str, length: int, is_seen: bool
) -> list[Suspect]:
    """The same where the hidden tokens are other numbers than theirs when they are pooled, as 0: proved by a run
    without them. letter: the symbol of the tokens. is_seen: other numbers in hidden tokens change the output.
    """
    if length <= PADS + 1 or not isinstance(rerun(plan=plan).named.get(plan.mask), Tensor):
        return []

    def changed(*, is_trimmed: bool) -> Run:
        def change(_: Any, options: dict[str, Any]) -> None:
            for argument, value in options.items():
                axes = axes_of(plan.call.get(argument))
                if isinstance(value, Tensor) and letter in axes and is_trimmed and argument != plan.mask:
                    options[argument] = value.narrow(axes.index(letter), 0, length - PADS).contiguous()
            options[plan.mask] = _hiding_last(plan, options[plan.mask], length, is_trimmed=is_trimmed)

        again: Run = rerun(plan=plan, more_change=change)
        return again

    padded, alone = changed(is_trimmed=False), changed(is_trimmed=True)
    return padding_suspects(padded, alone, name, of_shorter(PADS), "trimmed", length, lambda: is_seen)


def _hiding_last(plan: Plan, mask: Tensor, length: int, *, is_trimmed: bool) -> Tensor:
    """A mask that hides the last tokens of each sample, or of as many tokens as are left without them, and no other."""
    declared = plan.call["_mask"]
    if declared["means"] == "lengths":
        most = length - PADS
        return torch.full_like(mask, most if not declared.get("share") else (1 if is_trimmed else most / length))
    axis = max(at for at, each in enumerate(declared["shape"]) if str(each) not in ("B", "1"))
    seen, hidden = (1, 0) if declared["means"] == "attend" else (0, 1)
    out = torch.full_like(mask, seen)
    out.narrow(axis, length - PADS, PADS).fill_(-math.inf if declared["means"] == "additive" else hidden)
    return out.narrow(axis, 0, length - PADS).contiguous() if is_trimmed else out


def _others(tokens: Tensor, hidden: Tensor) -> Tensor:
    """Other tokens at hidden places: of numbers, the next among those that are there."""
    if tokens.is_floating_point():
        return torch.where(hidden.view(*hidden.shape, *[1] * (tokens.ndim - 2)), 1.0 - tokens, tokens)
    following = torch.roll(tokens, 1, dims=-1)
    return torch.where(hidden, following, tokens)


def are_apart(run: Run, again: Run, left: Left) -> bool:
    """Whether two runs give other results for the tokens that are left."""
    results = None if run.output is None or again.output is None else left(run.output, again.output)
    return results is not None and NEAR < distance(*results) < math.inf
