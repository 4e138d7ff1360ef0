"""Losing: tokens that a cache should hold and that are not among the keys or the values any more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from headwise.diagnosis.caches.breaking import in_call, joins
from headwise.diagnosis.caches.caching import Breach, breach_of
from headwise.diagnosis.caches.decoding import Decoded, Decoder
from headwise.diagnosis.caches.transplanting import Transplants
from headwise.diagnosis.checks.layout import sides
from headwise.diagnosis.following.anatomy import Attention, chain_of
from headwise.diagnosis.following.marks import place_of
from headwise.diagnosis.following.replacing import Site, site_of
from headwise.diagnosis.suspects import Suspect

__all__ = ["lost_suspects"]


def lost_suspects(decoder: Decoder, breach: Breach, done: Decoded, attention: Attention) -> list[Suspect]:
    """Tokens that were there before, and are not among the keys or the values any more."""
    end = sum(breach.cuts[: breach.at + 1])
    if done.run is None:
        return []
    transplants = Transplants(decoder, breach.cuts)
    stand_ins: dict[Site, Callable[..., Any]] = {}
    spans = []
    for side in sides(attention):
        places = set(torch.unique(place_of(side.t[side.t >= 0])).tolist())
        if side.name == "q" or places >= set(range(end)):
            continue
        chain = [
            each
            for each in chain_of(done.run, side.entry, side.operand)
            if each.at >= done.bounds[breach.at] and each.at < side.entry.at
        ]
        joined = [each for each in chain if joins(each)]
        own = chain[: chain.index(joined[0])] if joined else chain
        known = [each for each in own if transplants.is_known(each)]
        spans += [each.operation.span for each in joined[:1]] or [side.entry.operation.span]
        if known:
            stand_ins |= transplants.widened(known[-1], in_call(done, breach.at))
            stand_ins |= {site_of(each.operation): _last_part for each in joined}
    if not spans:
        return []
    own_joins = [each.operation.span for each in in_call(done, breach.at) if joins(each)]
    span = next((each for each in spans if each in own_joins), (own_joins or spans)[0])
    proved = breach_of(decoder, breach.way, breach.cuts, stand_ins=stand_ins) is None
    return [
        Suspect("causal-cache", span, stand_ins, words="cache_lost", proved=proved, evidence=f"{breach.distance:.4g}")
    ]


def _last_part(*args: Any, **options: Any) -> Any:
    parts = args[0] if args else options["tensors"]
    return parts[-1]
