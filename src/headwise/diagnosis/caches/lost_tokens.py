"""Lost tokens: tokens that a cache should hold and that are not among the keys or the values any more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

from torch import Tensor

from headwise.dataflow import AttentionOps, Decoded, Decoder, chain_of
from headwise.diagnosis.caches.decoding_calls import drops, in_call, joins, places_of
from headwise.diagnosis.caches.law import Breach, breach_of
from headwise.diagnosis.caches.uncached_results import Transplants
from headwise.diagnosis.checks.head_layout import Side, sides
from headwise.diagnosis.suspects import Suspect
from headwise.recording import Site, site_of

__all__ = ["lost_suspects"]


def lost_suspects(decoder: Decoder, breach: Breach, done: Decoded, attention: AttentionOps) -> list[Suspect]:
    """Tokens that were there before, and are not among the keys or the values any more."""
    end = sum(breach.cuts[: breach.at + 1])
    if done.run is None:
        return []
    transplants = Transplants(decoder, breach.cuts)
    stand_ins: dict[Site, Callable[..., Any]] = {}
    spans, dropped = [], []
    lost = [each for each in sides(attention) if each.name != "q" and not places_of(each.t) >= set(range(end))]
    for side in lost:
        chain = [
            each
            for each in chain_of(done.run, side.entry, side.operand)
            if each.at >= done.bounds[breach.at] and each.at < side.entry.at
        ]
        joined = [each for each in chain if joins(each)]
        own = chain[: chain.index(joined[0])] if joined else chain
        known = [each for each in own if transplants.is_known(each)]
        dropped += [each.operation.span for each in chain if drops(each, end)]
        spans += [each.operation.span for each in joined[:1]] or [side.entry.operation.span]
        if known:
            stand_ins |= transplants.widened(known[-1], in_call(done, breach.at))
            stand_ins |= {site_of(each.operation): _last_part for each in joined}
    if not spans:
        return []
    own_joins = [each.operation.span for each in in_call(done, breach.at) if joins(each)]
    span = next((each for each in spans if each in own_joins), (own_joins or spans)[0])
    tried = [stand_ins, _handed(decoder, breach, done, lost)]
    right = next((each for each in tried if each and _is_right(decoder, breach, each)), None)
    return [
        Suspect(
            "cache-lost", (dropped or [span])[0], stand_ins if right is None else right,
            proved=right is not None, evidence=f"{breach.distance:.4g}",
        )
    ]  # fmt: skip


def _is_right(decoder: Decoder, breach: Breach, stand_ins: dict[Site, Callable[..., Any]]) -> bool:
    return breach_of(decoder, breach.way, breach.cuts, stand_ins=stand_ins) is None


def _handed(decoder: Decoder, breach: Breach, done: Decoded, lost: Sequence[Side]) -> dict[Site, Callable[..., Any]]:
    """What hands the products the keys and the values that they get where there is no cache."""
    out: dict[Site, Callable[..., Any]] = {}
    for entry in {each.entry.at: each.entry for each in lost}.values():
        site = site_of(entry.operation)
        turn = sum(each.at < entry.at and site_of(each.operation) == site for each in in_call(done, breach.at))
        places = [
            next(at for at, each in enumerate(entry.tensors) if each is side.operand)
            for side in lost if side.entry is entry
        ]  # fmt: skip
        known: dict[int, dict[int, Tensor]] = {}
        # all of them now, as none may run within another
        for end in accumulate(breach.cuts):
            run = decoder.whole(end, recorded=True).run
            found = [] if run is None else [each for each in run.seen if site_of(each.operation) == site]
            values = [] if turn >= len(found) else [each.value for each in found[turn].operation.inputs]
            known[end] = {at: value for at, value in enumerate(values) if at in places and value is not None}
        out[site] = _with(entry.function, decoder, site, turn, known)
    return out


def _with(
    function: Callable[..., Any], decoder: Decoder, site: Site, turn: int, known: dict[int, dict[int, Tensor]]
) -> Callable[..., Any]:
    place = decoder.place

    def right(*args: Any, **options: Any) -> Any:
        count = place.counts[site] = place.counts.get(site, -1) + 1
        others = known[place.end] if count == turn else {}
        at = -1
        given = list(args)
        for number, each in enumerate(args):
            at += isinstance(each, Tensor)
            if isinstance(each, Tensor) and at in others and others[at].ndim == each.ndim:
                given[number] = others[at].to(each.dtype)
        return function(*given, **options)

    return right


def _last_part(*args: Any, **options: Any) -> Any:
    parts = args[0] if args else options["tensors"]
    return parts[-1]
