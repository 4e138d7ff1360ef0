"""Padding places: where hidden tokens come into what is computed of the others, as runs with and without them show."""

from __future__ import annotations

import math
from collections.abc import Callable

from torch import Tensor

from headwise.dataflow import (
    LAYERS,
    SOFTMAXES,
    AttentionOps,
    Run,
    attentions,
    find_pattern,
)
from headwise.diagnosis.checks.joined_padding import is_mask, pooled_at, right_elsewhere
from headwise.diagnosis.checks.mask_arguments import withheld
from headwise.diagnosis.checks.whole_models import query_and_key_sources
from headwise.diagnosis.distance import distance
from headwise.diagnosis.divergence import Left, divergences
from headwise.diagnosis.suspects import Suspect
from headwise.source import Span

__all__ = ["NEAR", "crossing", "padding_suspects", "shown_later"]

# what lays entries beside those of a mask
LAYS = frozenset({"pad", "cat", "concat", "concatenate", "roll"})
NEAR = 1e-9


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
    place = place and (right_elsewhere(run, again, left, place) or place)
    if place is None:
        kind, place = "padding-attended", crossing(run, again, name)
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


def crossing(run: Run, again: Run, name: str, *, is_learned: bool = False) -> Span | None:
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
        if NEAR < distance(*results) < math.inf and _sees_more(first, second):
            return _called_at(first)
        if is_learned:
            return None
    return None


def _sees_more(attention: AttentionOps, shorter: AttentionOps) -> bool:
    """Whether an attention may see keys that the same one does not have in a run with fewer tokens. Where it sees none,
    its result is another one for what counts the keys, as places do that count from the last, or for what was made of
    them before.
    """
    sight, other = find_pattern(attention), find_pattern(shorter)
    if sight is None or other is None or not other.column.numel():
        return True
    more = sight.column > other.column.max()
    return not bool(more.any()) or bool((sight.visible & more).any())


def _called_at(attention: AttentionOps) -> Span:
    """Where an attention is asked for: in the call of a class that holds it, that call."""
    chain = () if attention.context.last in LAYERS else attention.context.operation.chain
    return chain[-1] if chain else attention.context.span
