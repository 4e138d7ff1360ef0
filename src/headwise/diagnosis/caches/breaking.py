"""Breaking: why a call with a cache raises: a join along another axis than that of the tokens, or keys alone kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from headwise.diagnosis.caches.caching import Breach, breach_of
from headwise.diagnosis.caches.decoding import Decoded, Decoder
from headwise.diagnosis.caches.transplanting import Transplants
from headwise.diagnosis.following.anatomy import chain_of
from headwise.diagnosis.following.marks import Marks, place_of
from headwise.diagnosis.following.replacing import Site, site_of
from headwise.diagnosis.following.shadow import JOINS, Seen
from headwise.diagnosis.suspects import Suspect
from headwise.recording import Operation

__all__ = ["in_call", "joins", "raised_suspects"]

CATS = ("cat", "concat", "concatenate")
WRITES = ("__setitem__", "copy_", "index_copy_", "index_put_", "scatter_")
# joins that are put right one after the other
MOST = 4
AXES = (-2, -3, -1, -4)


def in_call(done: Decoded, at: int) -> list[Seen]:
    """The operations of one call of a sequence."""
    stop = done.bounds[at + 1] if at + 1 < len(done.bounds) else None
    return [] if done.run is None else list(done.run.seen[done.bounds[at] : stop])


def joins(entry: Seen) -> bool:
    """Whether an operation puts tokens to others, or where none were; to put parts of one token together is no such."""
    if entry.last not in JOINS and entry.last not in WRITES:
        return False
    held = [None if marks is None or marks.kind != "token" else _places(marks) for marks in entry.given]
    known = [each for each in held if each is not None]
    return bool(known) and (None in held or any(each != known[0] for each in known) or -1 in known[0])


def _places(marks: Marks) -> frozenset[int]:
    return frozenset(torch.unique(place_of(marks.arrays["t"])).tolist())


def raised_suspects(decoder: Decoder, breach: Breach, done: Decoded) -> list[Suspect]:
    """What is wrong where a call with a cache raises."""
    failure = None if done.run is None else done.run.record.failure
    if done.run is None or failure is None or failure.operation is None:
        return []
    error = f"{type(failure.error).__name__}: {failure.error}".splitlines()[0][:200]
    return (
        _axes(decoder, breach, done, error)
        or _values(decoder, breach, done, failure.operation, error)
        or [
            Suspect(
                "causal-cache", failure.span, words="cache_raises", said={"error": error}, proved=False,
                evidence=error,
            )
        ]
    )  # fmt: skip


def _axes(decoder: Decoder, breach: Breach, done: Decoded, error: str) -> list[Suspect]:
    """Joins along a wrong axis: put right one after the other, until the law holds."""
    fixed: dict[Site, Callable[..., Any]] = {}
    now = done
    for _ in range(MOST):
        found = _next_axis(decoder, breach, now, fixed)
        if found is None:
            return []
        fixed |= found
        if breach_of(decoder, breach.way, breach.cuts, stand_ins=fixed) is None:
            said = {"error": error}
            return [
                Suspect(
                    "causal-cache", site[1], {site: right}, words="cache_axis", said=said, proved=True, evidence=error
                )
                for site, right in fixed.items()
            ]
        now = decoder.parts(breach.way, breach.cuts, stand_ins=fixed, recorded=True)
    return []


def _next_axis(
    decoder: Decoder, breach: Breach, now: Decoded, fixed: dict[Site, Callable[..., Any]]
) -> dict[Site, Callable[..., Any]] | None:
    """A join with another axis, with which a sequence comes further than it did."""
    failure = None if now.run is None else now.run.record.failure
    if now.run is None or failure is None or failure.operation is None or not now.bounds:
        return None
    sites = [site_of(each.operation) for each in in_call(now, len(now.bounds) - 1) if each.last in CATS]
    if failure.operation.function.rpartition(".")[2] in CATS:
        sites.insert(0, site_of(failure.operation))
    before = len(now.run.record.operations)
    for site in sites:
        if site in fixed:
            continue
        for axis in AXES:
            then = decoder.parts(breach.way, breach.cuts, stand_ins={**fixed, site: _along(axis)}, recorded=True)
            if then.error is None or (then.run is not None and len(then.run.record.operations) > before):
                return {site: _along(axis)}
    return None


def _along(axis: int) -> Callable[..., Any]:
    def right(*args: Any, **options: Any) -> Any:
        parts = args[0] if args else options["tensors"]
        return torch.cat(list(parts), dim=axis)

    return right


def _values(decoder: Decoder, breach: Breach, done: Decoded, failed: Operation, error: str) -> list[Suspect]:
    """One of keys and values of earlier tokens that is not there, as the other is."""
    if done.run is None:
        return []
    transplants = Transplants(decoder, breach.cuts)
    own = in_call(done, len(done.bounds) - 1)
    joined = [each for each in own if joins(each)]
    for seen in failed.inputs:
        marks = done.run.marks_at(seen)
        if marks is None or marks.kind != "token":
            continue
        for entry in reversed(chain_of(done.run, len(done.run.seen), seen.number)):
            if entry.at < done.bounds[-1]:
                break
            stand_ins = transplants.widened(entry, own)
            if breach_of(decoder, breach.way, breach.cuts, stand_ins=stand_ins) is None:
                span = joined[0].operation.span if joined else entry.operation.span
                said = {"error": error}
                return [
                    Suspect(
                        "causal-cache", span, stand_ins, words="cache_values", said=said, proved=True, evidence=error
                    )
                ]
    return []
