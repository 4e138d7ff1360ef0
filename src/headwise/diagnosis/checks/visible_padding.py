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
    LAYERS,
    SOFTMAXES,
    AttentionOps,
    Run,
    allowed_by,
    attentions,
    axes_of,
    find_pattern,
)
from headwise.diagnosis.checks.joined_padding import is_mask, pooled_at
from headwise.diagnosis.checks.mask_arguments import withheld
from headwise.diagnosis.checks.whole_models import query_and_key_sources
from headwise.diagnosis.distance import distance
from headwise.diagnosis.divergence import Left, divergences, of_hidden, of_shorter
from headwise.diagnosis.padding_tokens import Padding, meets_scores, paddings
from headwise.diagnosis.repair import Change
from headwise.diagnosis.suspects import Suspect
from headwise.source import Span

__all__ = ["NEAR", "PADS", "are_apart", "are_hidden", "padding_suspects", "shown_later", "visible_padding"]

# what lays entries beside those of a mask
LAYS = frozenset({"pad", "cat", "concat", "concatenate", "roll"})
FILLS = frozenset({"masked_fill", "masked_fill_", "where"})
NEAR = 1e-9
# how many tokens are padding where it is made
PADS = 2
# what a mask is called that hides what is there, and may not be chosen again
CHOSEN = re.compile(r"visited|forbid|infeasib|unavail|chosen|selected|picked|already|taken|tabu|illegal|legal|feasib")


def visible_padding(plan: Plan, rerun: Callable[..., Run], *, is_sure: bool) -> list[Suspect]:
    """The first operation that brings tokens which a mask of keys hides into what has no such tokens.

    Which is a sum, mean or maximum over tokens, or an attention of the queries of another input. Proved by a run in
    which the hidden tokens alone are others: the output differs. is_sure: it is known what the mask means; where it is
    not, an attention whose pattern is known must have told.
    """
    run: Run = rerun(plan=plan)
    tokens = None if CHOSEN.search(plan.mask) else _hidden_tokens(plan, run)
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
    if (place := _crossing(run, again, name, is_learned=True)) is not None:
        is_turned = _crossing(run, changed(~hidden), name, is_learned=True) is None
        if is_turned and not is_sure:
            return []
        pooled = None if is_turned else pooled_at(divergences(run, again, of_hidden(hidden)), length)
        if pooled is not None:
            return [Suspect("padding-pooled", pooled, values={"how": "hidden", "name": name}, proved=True)]
        values = {"name": name, "leak": "100%"}
        return [Suspect("mask-inverted" if is_turned else "padding-attended", place, values=values, proved=True)]
    if suspects := shown_later(run, name, hidden):
        return suspects
    has_tokens = run.output is not None and length in run.output.shape
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
    name = next(
        (each for each in run.known if _shape(run.named[each], _axis_of(plan, each, letter)) == (samples, length)), ""
    )
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


def shown_later(run: Run, name: str, hidden: Tensor) -> list[Suspect]:
    """An attention among tokens of an argument that sees those which one before it hides. hidden: (batch, tokens).

    Where the same line hid them, its caller is to blame.
    """
    hiding = set[Span]()
    for attention in attentions(run):
        sight = find_pattern(attention)
        if sight is None or query_and_key_sources(attention) != ({run.sources[name]}, {run.sources[name]}):
            continue
        if (
            int(sight.sample.max()) >= hidden.shape[0]
            or int(max(sight.row.max(), sight.column.max())) >= hidden.shape[1]
        ):
            continue
        across = hidden[sight.sample, sight.column] & ~hidden[sight.sample, sight.row]
        if not bool((sight.visible & across).any()):
            hiding |= {attention.context.span} if bool(across.any()) else set()
        elif hiding:
            chain = attention.context.operation.chain if attention.context.span in hiding else ()
            place = chain[-1] if chain else _called_at(attention)
            return [Suspect("padding-attended", place, values={"name": name}, proved=True)]
    return []


def _called_at(attention: AttentionOps) -> Span:
    """Where an attention is asked for: in the call of a class that holds it, that call."""
    chain = () if attention.context.last in LAYERS else attention.context.operation.chain
    return chain[-1] if chain else attention.context.span


def padding_suspects(
    run: Run,
    again: Run,
    name: str,
    left: Left,
    how: str,
    length: int,
    is_seen: Callable[[], bool] = lambda: False,
) -> list[Suspect]:
    """What brings hidden tokens of an argument into an output that has none. again: with others in their place, or
    without them; left: the entries of the others in both; how: which of both; length: how many tokens there are.

    is_seen: whether other numbers in hidden tokens are known to change the output.
    """
    if run.failure or again.failure or run.output is None or again.output is None:
        return []
    results = left(run.output, again.output)
    error = math.inf if results is None else distance(*results)
    if error <= NEAR or error == math.inf:
        return []
    apart = list(divergences(run, again, left))
    kind, place = "padding-pooled", pooled_at(apart, length)
    if place is None:
        kind, place = "padding-attended", _crossing(run, again, name)
    for operation in (
        [divergence.operation for divergence in reversed(apart)] if place is None and how == "trimmed" else ()
    ):
        if operation.last in SOFTMAXES:
            call = withheld(run, operation) if run.plan.mask else None
            kind, place = ("padding-attended", call) if call else ("padding-pooled", operation.span)
        elif operation.last in LAYS and is_mask(operation) and is_seen():
            # laid at the wrong end, it hides others than those that it is of
            kind, place = "mask-shifted", operation.span
        if place is not None:
            break
    if place is None:
        return []
    return [Suspect(kind, place, values={"how": how, "name": name}, proved=True, evidence=f"{error:.4g}")]


def _crossing(run: Run, again: Run, name: str, *, is_learned: bool = False) -> Span | None:
    """The first attention of other queries to the tokens of an argument whose result differs in two runs. is_learned:
    of queries that are no input's, before which no other attention has taken tokens in.
    """
    for first, second in zip(attentions(run), attentions(again), strict=False):
        queries, keys = query_and_key_sources(first)
        if first.context.span != second.context.span or keys != {run.sources[name]} or keys & queries:
            continue
        if is_learned != (not queries):
            continue
        results = [each.context.outputs[0].value for each in (first, second)]
        if NEAR < distance(*results) < math.inf:
            return _called_at(first)
        if is_learned:
            return None
    return None


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
