"""Failed calls: why a call with a cache raises: it joins along another axis than tokens, or keeps keys alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from headwise.dataflow import Decoded, Decoder, chain_of
from headwise.diagnosis.caches.decoding_calls import WRITES, drops, in_call, joins
from headwise.diagnosis.caches.law import Breach, breach_of
from headwise.diagnosis.caches.uncached_results import Transplants
from headwise.diagnosis.repair import Repair
from headwise.diagnosis.suspects import Suspect
from headwise.recording import Operation, Site, site_of

__all__ = ["raised_suspects"]

CATS = ("cat", "concat", "concatenate")
# joins that are put right one after the other
MOST = 4
AXES = (-2, -3, -1, -4)


def raised_suspects(decoder: Decoder, breach: Breach, decoded: Decoded) -> list[Suspect]:
    """What is wrong where a call with a cache raises."""
    failure = None if decoded.run is None else decoded.run.failure
    if decoded.run is None or failure is None or failure.operation is None:
        return []
    error = failure.words
    # what fails later may have been handed what the next call should have had otherwise: its mask, or no new keys
    is_join = failure.operation.last in (*CATS, *WRITES)
    return (
        _axes(decoder, breach, decoded, error)
        or _values(decoder, breach, decoded, failure.operation, error)
        or [
            Suspect(
                "cache-raises", failure.span, values={"error": error}, proved=False,
                evidence=error, guess="" if is_join else "cache",
            )
        ]
    )  # fmt: skip


def _axes(decoder: Decoder, breach: Breach, decoded: Decoded, error: str) -> list[Suspect]:
    """Joins along a wrong axis: put right one after the other, until the law holds."""
    fixed: dict[Site, Callable[..., Any]] = {}
    now = decoded
    for _ in range(MOST):
        found = _next_axis(decoder, breach, now, fixed)
        if found is None:
            return []
        fixed |= found
        if breach_of(decoder, breach.way, breach.cuts, stand_ins=fixed) is None:
            values = {"error": error}
            return [
                Suspect("cache-axis", site[1], Repair({site: right}), values=values, proved=True, evidence=error)
                for site, right in fixed.items()
            ]
        now = decoder.parts(breach.way, breach.cuts, stand_ins=fixed, recorded=True)
    return []


def _next_axis(
    decoder: Decoder, breach: Breach, now: Decoded, fixed: dict[Site, Callable[..., Any]]
) -> dict[Site, Callable[..., Any]] | None:
    """A join with another axis, with which a sequence comes further than it did."""
    failure = None if now.run is None else now.run.failure
    if now.run is None or failure is None or failure.operation is None or not now.bounds:
        return None
    sites = [entry.site for entry in in_call(now, len(now.bounds) - 1) if entry.last in CATS]
    if failure.operation.last in CATS:
        sites.insert(0, site_of(failure.operation))
    before = len(now.run.record.operations)
    for site in sites:
        if site in fixed:
            continue
        for axis in AXES:
            changed = decoder.parts(breach.way, breach.cuts, stand_ins={**fixed, site: _along(axis)}, recorded=True)
            if changed.error is None or (changed.run is not None and len(changed.run.record.operations) > before):
                return {site: _along(axis)}
    return None


def _along(axis: int) -> Callable[..., Any]:
    def right(*args: Any, **options: Any) -> Any:
        parts = args[0] if args else options["tensors"]
        return torch.cat(list(parts), dim=axis)

    return right


def _values(decoder: Decoder, breach: Breach, decoded: Decoded, failed: Operation, error: str) -> list[Suspect]:
    """One of keys and values of earlier tokens that is not there, as the other is."""
    if decoded.run is None:
        return []
    transplants = Transplants(decoder, breach.cuts)
    entries = in_call(decoded, len(decoded.bounds) - 1)
    joined = [op for op in entries if joins(op)]
    for tensor in failed.inputs:
        marks = decoded.run.marks_at(tensor)
        if marks is None or marks.kind not in ("token", "pair"):
            continue
        for entry in reversed(chain_of(decoded.run, len(decoded.run.seen), tensor.number)):
            if entry.at < decoded.bounds[-1]:
                break
            if all(each is None or each.kind != "token" for each in entry.output_marks):
                continue
            stand_ins = transplants.widened(entry, entries)
            if breach_of(decoder, breach.way, breach.cuts, stand_ins=stand_ins) is None:
                wrong = [*(op for op in entries if drops(op, sum(breach.cuts[: breach.at + 1]))), *joined, entry]
                span, values = wrong[0].span, {"error": error}
                return [
                    Suspect("cache-incomplete", span, Repair(stand_ins), values=values, proved=True, evidence=error)
                ]
    return []
