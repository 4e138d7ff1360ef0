"""Uncached results: results for all tokens in place of those for a part of them, and the tokens that a cache lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from headwise.dataflow import AttentionOps, Decoded, Decoder, MarkedOp, attentions, chain_of, find_pattern
from headwise.diagnosis.caches.decoding_calls import drops, in_call, joins, places_of
from headwise.diagnosis.caches.law import Breach, breach_of
from headwise.diagnosis.checks.head_layout import Side, sides
from headwise.diagnosis.repair import Repair
from headwise.diagnosis.suspects import Suspect
from headwise.recording import Site, site_of

__all__ = ["Transplants", "lost_suspects"]

NEAR = 1e-9


class Transplants:
    """The operations of the runs without a cache, by their sites and by how many tokens there are."""

    def __init__(self, decoder: Decoder, cuts: Sequence[int]) -> None:
        self.decoder = decoder
        # all of them now, as none may run within another
        self._known = {end: self._of(end) for end in accumulate(cuts)}

    def _of(self, end: int) -> dict[Site, list[tuple[Tensor, ...]]]:
        run = self.decoder.whole(end, recorded=True).run
        values_by_site: dict[Site, list[tuple[Tensor, ...]]] = {}
        for operation in () if run is None else run.record.operations:
            values = tuple(output.value for output in operation.outputs if output.value is not None)
            values_by_site.setdefault(site_of(operation), []).append(values)
        return values_by_site

    def roots(self, decoded: Decoded, at: int, attention: AttentionOps) -> list[MarkedOp]:
        """The operations of one call, up to the weighted sum, that make of what is right another thing than without."""
        run = decoded.run
        if run is None:
            return []
        first, end = sum(decoded.cuts[:at]), sum(decoded.cuts[: at + 1])
        counts: dict[Site, int] = {}
        wrong: set[int] = set()
        out = []
        for entry in run.seen[decoded.bounds[at] : attention.context.at + 1]:
            site = entry.site
            place = counts[site] = counts.get(site, -1) + 1
            wholes = self._known[end].get(site, [])
            differs = _differs(entry, wholes[place], first, end) if place < len(wholes) else None
            is_led = bool(wrong & entry.taken)
            numbers = entry.results | set(entry.operation.writes)
            if differs is False:
                wrong -= numbers
            elif differs or is_led:
                wrong |= numbers
            if differs and not is_led:
                out.append(entry)
        return out

    def stand_ins(self, entries: Sequence[MarkedOp]) -> dict[Site, Callable[..., Any]]:
        """What makes of some tokens what is made of all."""
        return {entry.site: self._right(entry.site, entry.function) for entry in entries}

    def is_known(self, entry: MarkedOp) -> bool:
        """Whether an operation is also run without a cache."""
        return any(entry.site in each for each in self._known.values())

    def widened(self, entry: MarkedOp, before: Sequence[MarkedOp]) -> dict[Site, Callable[..., Any]]:
        """What makes of some tokens, where others came before them, what is made of all up to the last of them.

        before: the operations of the same call; where a site is met more than once, only this time is meant.
        """
        site = entry.site
        place, function = self.decoder.place, entry.function
        turn = sum(op.at < entry.at and op.site == site for op in before)

        def right(*args: Any, **options: Any) -> Any:
            output = function(*args, **options)
            count = place.counts[site] = place.counts.get(site, -1) + 1
            wholes = self._known[place.end].get(site, [])
            if count != turn or count >= len(wholes) or not isinstance(output, Tensor) or len(wholes[count]) != 1:
                return output
            return wholes[count][0].to(output.dtype).clone()

        return {site: right}

    def _right(self, site: Site, function: Callable[..., Any]) -> Callable[..., Any]:
        place = self.decoder.place

        def right(*args: Any, **options: Any) -> Any:
            output = function(*args, **options)
            count = place.counts[site] = place.counts.get(site, -1) + 1
            wholes = self._known[place.end].get(site, [])
            if count >= len(wholes):
                return output
            many = list(output) if isinstance(output, tuple | list) else [output]
            parts = [
                _part_of(whole, tuple(output.shape), place.first, place.end) if isinstance(output, Tensor) else None
                for output, whole in zip(many, wholes[count], strict=False)
            ]
            parts += [None] * (len(many) - len(parts))
            out = [_put(each, part, function) for each, part in zip(many, parts, strict=True)]
            return type(output)(out) if isinstance(output, tuple | list) else out[0]

        return right


def _differs(entry: MarkedOp, wholes: tuple[Tensor, ...], first: int, end: int) -> bool | None:
    """Whether an operation made another thing of some tokens than of all; None: the two cannot be compared."""
    differences = []
    for output, whole in zip(entry.outputs, wholes, strict=False):
        part = _part_of(whole, output.shape, first, end)
        if part is not None and output.value is not None:
            differences.append(not _is_same(part, output.value))
    return any(differences) if differences else None


def _put(output: Any, part: Tensor | None, function: Callable[..., Any]) -> Any:
    if part is None:
        return output
    part = part.to(output.dtype)
    name = getattr(function, "__name__", "")
    if name.endswith("_") and not name.endswith("__"):
        return output.copy_(part)
    return part.clone()


def _part_of(whole: Tensor, shape: tuple[int, ...], first: int, end: int) -> Tensor | None:
    """What of a result for all tokens is the result for some: rows from first to end, keys up to end; None: neither."""
    if whole.ndim != len(shape):
        return None
    for axis, (size, wanted) in enumerate(zip(whole.shape, shape, strict=True)):
        if size == wanted:
            continue
        if size != end or wanted != end - first:
            return None
        whole = whole.narrow(axis, first, end - first)
    return whole


def _is_same(a: Tensor, b: Tensor) -> bool:
    if a.dtype == torch.bool or b.dtype == torch.bool:
        return torch.equal(a, b)
    return torch.allclose(a, b.to(a.dtype), rtol=NEAR, atol=NEAR, equal_nan=True)


def lost_suspects(decoder: Decoder, breach: Breach, decoded: Decoded, attention: AttentionOps) -> list[Suspect]:
    """Tokens that were there before, and are not among the keys or the values any more."""
    end = sum(breach.cuts[: breach.at + 1])
    if decoded.run is None:
        return []
    transplants = Transplants(decoder, breach.cuts)
    stand_ins: dict[Site, Callable[..., Any]] = {}
    spans, dropped, latest = [], [], dict[Site, Callable[..., Any]]()
    needed = _attended(decoder, attention, sum(breach.cuts[: breach.at]), end)
    lost = [each for each in sides(attention) if each.name != "q" and not places_of(each.t) >= needed]
    for side in lost:
        way = [entry for entry in chain_of(decoded.run, side.entry, side.operand) if entry.at < side.entry.at]
        chain = [entry for entry in way if entry.at >= decoded.bounds[breach.at]]
        # what is kept of a call may be too little
        earlier = [entry for entry in way if entry.at < decoded.bounds[breach.at]]
        joined = [each for each in chain if joins(each)]
        new_entries = chain[: chain.index(joined[0])] if joined else chain
        uncached = [entry for entry in new_entries if transplants.is_known(entry)]
        cut = [entry for entry in earlier if drops(entry, sum(breach.cuts[: breach.at]))]
        dropped += [entry.span for entry in (*(entry for entry in chain if drops(entry, end)), *cut)]
        latest |= {entry.site: _latest(entry.function) for entry in cut}
        spans += [each.span for each in joined[:1]] or [side.entry.span]
        if uncached:
            stand_ins |= transplants.widened(uncached[-1], in_call(decoded, breach.at))
            stand_ins |= {entry.site: _last_part for entry in joined}
    if not spans:
        return []
    own_joins = [entry.span for entry in in_call(decoded, breach.at) if joins(entry)]
    span = next((each for each in spans if each in own_joins), (own_joins or spans)[0])
    tried = [latest, stand_ins, _handed(decoder, breach, decoded, lost)]
    right = next((each for each in tried if each and _is_right(decoder, breach, each)), None)
    return [
        Suspect(
            "cache-lost",
            (dropped or [span])[0],
            Repair(stand_ins if right is None else right),
            proved=right is not None,
            evidence=f"{breach.distance:.4g}",
        )
    ]


def _attended(decoder: Decoder, attention: AttentionOps, first: int, end: int) -> set[int]:
    """The places that the tokens from first to end attend to without a cache: a window leaves others out."""
    run = decoder.whole(end, recorded=True).run
    found = None if run is None else find_pattern(
        next((each for each in attentions(run) if each.context.site == attention.context.site), attention)
    )  # fmt: skip
    if found is None or int(found.column.max()) != end - 1 or bool((found.source != found.source.flatten()[0]).any()):
        # keys of others stand beside them
        return set(range(end))
    asking = found.visible & (found.row >= first)
    return set(found.column.expand(asking.shape)[asking].tolist())


def _latest(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that takes some entries along an axis, the first ones or others, and gives as many of the last."""

    def right(whole: Tensor, *args: Any, **options: Any) -> Tensor:
        part: Tensor = function(whole, *args, **options)
        shorter = [
            axis for axis in range(whole.ndim) if part.ndim == whole.ndim and part.shape[axis] < whole.shape[axis]
        ]
        if len(shorter) != 1:
            return part
        count = part.shape[shorter[0]]
        return whole.narrow(shorter[0], whole.shape[shorter[0]] - count, count)

    return right


def _is_right(decoder: Decoder, breach: Breach, stand_ins: dict[Site, Callable[..., Any]]) -> bool:
    return breach_of(decoder, breach.way, breach.cuts, stand_ins=stand_ins) is None


def _handed(decoder: Decoder, breach: Breach, decoded: Decoded, lost: Sequence[Side]) -> dict[Site, Callable[..., Any]]:
    """What hands the products the keys and the values that they get where there is no cache."""
    out: dict[Site, Callable[..., Any]] = {}
    for entry in {each.entry.at: each.entry for each in lost}.values():
        site = entry.site
        turn = sum(op.at < entry.at and op.site == site for op in in_call(decoded, breach.at))
        places = [
            next(at for at, each in enumerate(entry.tensors) if each is side.operand)
            for side in lost if side.entry is entry
        ]  # fmt: skip
        values_by_turn: dict[int, dict[int, Tensor]] = {}
        # all of them now, as none may run within another
        for end in accumulate(breach.cuts):
            run = decoder.whole(end, recorded=True).run
            entries = [] if run is None else [op for op in run.seen if op.site == site]
            values = [] if turn >= len(entries) else [tensor.value for tensor in entries[turn].operation.inputs]
            values_by_turn[end] = {at: value for at, value in enumerate(values) if at in places and value is not None}
        out[site] = _with(entry.function, decoder, site, turn, values_by_turn)
    return out


def _with(
    function: Callable[..., Any], decoder: Decoder, site: Site, turn: int, values_by_turn: dict[int, dict[int, Tensor]]
) -> Callable[..., Any]:
    place = decoder.place

    def right(*args: Any, **options: Any) -> Any:
        count = place.counts[site] = place.counts.get(site, -1) + 1
        others = values_by_turn[place.end] if count == turn else {}
        at = -1
        arguments = list(args)
        for number, argument in enumerate(args):
            at += isinstance(argument, Tensor)
            if isinstance(argument, Tensor) and at in others and others[at].ndim == argument.ndim:
                arguments[number] = others[at].to(argument.dtype)
        return function(*arguments, **options)

    return right


def _last_part(*args: Any, **options: Any) -> Any:
    parts = args[0] if args else options["tensors"]
    return parts[-1]
