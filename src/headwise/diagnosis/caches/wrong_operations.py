"""Operations that are wrong in a step with a cache: those with which, put right, the law of the cache holds."""

from __future__ import annotations

from itertools import combinations

from headwise.dataflow import ATTENTIONS, AttentionOps, Decoded, Decoder, MarkedOp, Run, chain_of, makers
from headwise.diagnosis.caches.decoding_calls import joins
from headwise.diagnosis.caches.law import Breach, breach_of, guess_of
from headwise.diagnosis.caches.masks import hides, is_mask_alone, is_rectangle
from headwise.diagnosis.caches.uncached_results import Transplants
from headwise.diagnosis.checks.rotary import called
from headwise.diagnosis.repair import Repair
from headwise.diagnosis.suspects import Suspect
from headwise.source import made_at, start_of

__all__ = ["transplanted_suspects", "unexplained_suspects"]

# so many operations that are wrong are looked at, so many of them at once or all
MOST = 8
MOST_AT_ONCE = 2


def transplanted_suspects(decoder: Decoder, breach: Breach, decoded: Decoded, attention: AttentionOps) -> list[Suspect]:
    """The fewest operations with which the law holds when they are put right."""
    if decoded.run is None:
        return []
    transplants = Transplants(decoder, breach.cuts)
    roots = transplants.roots(decoded, breach.at, attention)[:MOST]
    for count in (1, 2, *((len(roots),) if len(roots) > MOST_AT_ONCE else ())):
        for entries in combinations(roots, count):
            stand_ins = transplants.stand_ins(entries)
            if breach_of(decoder, breach.way, breach.cuts, stand_ins=stand_ins) is None:
                return _distinct([_named(decoder, decoded.run, entry, breach, transplants) for entry in entries])
    return []


def _distinct(suspects: list[Suspect]) -> list[Suspect]:
    """One for each line and kind."""
    lines = {
        (suspect.kind, suspect.span.line if suspect.span is not None else 0): suspect for suspect in reversed(suspects)
    }
    return list(reversed(lines.values()))


def _named(decoder: Decoder, run: Run, entry: MarkedOp, breach: Breach, transplants: Transplants) -> Suspect:
    """What an operation that is wrong with a cache is called, by what it reaches."""
    stand_ins = transplants.stand_ins([entry])
    reached, evidence, span = _reaches(run, entry), f"{breach.distance:.4g}", entry.span
    kind, values = "cache-step-differs", {}
    joined = _joined_by(run, entry, transplants)
    if reached == "fused" and is_mask_alone(decoder, breach, entry):
        kind = "causal-cache"
    elif joined is not None:
        kind, span = "cache-lost", joined.span
    elif reached == "pair" and (maker := _made_beside(run, entry, transplants)) is not None:
        # a bias that hides nothing is of the places of queries and keys
        kind, span = "causal-cache" if hides(run, maker) else "position-cache", maker.span
    elif reached == "pair" and hides(run, entry):
        kind, values = "causal-cache", {"made": "rectangle" if is_rectangle(entry) else ""}
    elif reached == "token" and entry.joint is None:
        kind, span = "position-cache", called(entry)
    is_late = kind == "position-cache" and _begins_elsewhere(entry, breach)
    home = made_at(span, entry.operation.chain, start_of) if is_late else None
    return Suspect(kind, span, Repair(stand_ins), values=values, proved=True, evidence=evidence, home=home)


def _begins_elsewhere(entry: MarkedOp, breach: Breach) -> bool:
    """Whether an operation takes a slice that begins elsewhere than at the number of the tokens before a step."""
    index = entry.args[1] if entry.name == "index" and len(entry.args) > 1 else ()
    slices = [part for part in (index if isinstance(index, tuple) else (index,)) if isinstance(part, slice)]
    return any(part.start not in (None, sum(breach.cuts[: breach.at])) for part in slices)


def _joined_by(run: Run, entry: MarkedOp, transplants: Transplants) -> MarkedOp | None:
    """What put what was kept into an operand, and is not run without a cache; None: nothing did."""
    for tensor, marks in zip(entry.inputs, entry.given, strict=True):
        if marks is None or marks.kind != "token":
            continue
        for op in reversed(chain_of(run, entry.at, tensor.number)):
            if transplants.is_known(op):
                break
            if joins(op):
                return op
    return None


def _made_beside(run: Run, entry: MarkedOp, transplants: Transplants) -> MarkedOp | None:
    """What made an operand without tokens, as a mask or a bias, and is not run without a cache; None: nothing did."""
    for tensor in entry.unmarked_inputs:
        for op in makers(run, entry.at, tensor.number)[:1]:
            if not transplants.is_known(op):
                return op
    return None


def _reaches(run: Run, entry: MarkedOp) -> str:
    """ "pair": scores; "token": what is no score yet; "fused": torch's whole attention; "": that is not known."""
    if entry.last in ATTENTIONS:
        return "fused"
    numbers = entry.results
    kinds = [marks.kind for marks in entry.output_marks if marks is not None]
    if kinds:
        return kinds[0]
    for op in run.seen[entry.at + 1 :]:
        if not numbers & op.taken:
            continue
        kinds = [marks.kind for marks in op.given if marks is not None]
        if op.last in ATTENTIONS:
            return "pair"
        if kinds:
            return kinds[0]
        numbers |= op.results
    return ""


def unexplained_suspects(decoder: Decoder, breach: Breach, decoded: Decoded, attention: AttentionOps) -> list[Suspect]:
    """The first operation of a step that gives another result than without a cache, or else its softmax."""
    roots = Transplants(decoder, breach.cuts).roots(decoded, breach.at, attention)
    entry = next(iter(roots), attention.softmax or attention.scores or attention.context)
    guess = guess_of(decoder, breach)
    values, error = {"how": "stepped"}, f"{breach.distance:.4g}"
    return [Suspect("cache-step-differs", entry.span, values=values, proved=not guess, evidence=error, guess=guess)]
