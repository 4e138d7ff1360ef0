"""Faults: what is wrong where a cache is, and which operation does it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from headwise.calls import EMPTY, Plan, call_role, callee, init_role, parameters
from headwise.dataflow import (
    JOINS,
    Decoded,
    Decoder,
    DecodingStep,
    MarkedOp,
    axes_of,
)
from headwise.diagnosis.caches.decoding_calls import attention_of, in_call, is_falling, joins, places_of
from headwise.diagnosis.caches.failed_calls import raised_suspects
from headwise.diagnosis.caches.law import (
    TOKENS,
    Breach,
    Kept,
    breach_of,
    kept,
    may_keep,
)
from headwise.diagnosis.caches.masks import unmasked_suspects
from headwise.diagnosis.caches.uncached_results import lost_suspects
from headwise.diagnosis.caches.wide_windows import wide_suspects
from headwise.diagnosis.caches.wrong_operations import transplanted_suspects, unexplained_suspects
from headwise.diagnosis.checks.head_layout import sides
from headwise.diagnosis.checks.projection_names import KEYS
from headwise.diagnosis.checks.stated_uses import is_for_chunks
from headwise.diagnosis.coverage import Missed
from headwise.diagnosis.examination import Examination
from headwise.diagnosis.faults import FAULT, WARNING
from headwise.diagnosis.plans.decoding_plans import looking_back, with_room
from headwise.diagnosis.repair import Repair
from headwise.diagnosis.suspects import Suspect

__all__ = ["remembered"]

# keys in a window that leaves some of the tokens behind
WINDOW = 3


def remembered(exams: Sequence[Examination]) -> list[Examination]:
    """Examinations of a target, of which one was made without a cache and now says what is wrong with it."""
    exam = next((each for each in exams if each.plan.setting == "self" and each.is_understood), None)
    if exam is None:
        is_understood, is_wrong = any(each.is_understood for each in exams), any(each.suspects for each in exams)
        why = "no_self" if is_understood else "faults_first" if is_wrong else "not_followed"
        exams[0].examined.setdefault("cache", Missed(f"doctor.missed.{why}"))
        return list(exams)
    found = _of_cache(exam, exams)
    return [each.with_suspects([*each.suspects, *found]) if each is exam else each for each in exams]


def _of_cache(exam: Examination, exams: Sequence[Examination]) -> list[Suspect]:
    """What is wrong with the cache of a target. exam: that of a sequence without one."""
    exam.examined["cache"] = Missed("doctor.missed.no_cache")
    # a memory that is as long as what is decoded would grow with it
    apart = next((each for each in exams if each.plan.setting == "cross" and each.is_understood), None)
    plan = _alone(exam, exam.free)
    plan = apart.free if apart is not None and _has_memory(plan, apart.free) else plan
    symbol = next((each for each in plan.symbols if each.name == "L"), None)
    is_free = symbol is not None and not symbol.equals and symbol.fixed is None
    if not is_free or not any("L" in axes_of(each) for each in plan.call.values()):
        return []
    decoder = _decoder(exam, plan)
    if not may_keep(decoder):
        return []
    if any(suspect.repair.is_local for suspect in exam.suspects):
        # what puts them right is made for one length, and what they are wrong in is wrong with a cache too
        exam.examined["cache"] = Missed("doctor.missed.faults_first")
        return []
    exam.examined["cache"] = Missed("doctor.missed.cache_unseen")
    flagged, out = looking_back(plan), list[Suspect]()
    for variant in (plan,) if flagged is None else (plan, flagged):
        decoder = _decoder(exam, variant)
        cache = kept(decoder)
        suspects = cache_suspects(decoder, cache, is_published=exam.is_published)
        if suspects and variant is plan and flagged is not None and _is_right(_decoder(exam, flagged), exam):
            # with the flag that says that tokens come one after another it is right: without it another thing is kept
            exam.examined["cache"] = True
            return []
        asked = frozenset(variant.call.keys() - plan.call.keys())
        if suspects and asked and _is_right(replace(decoder, place=DecodingStep(), wholes={}, opening=asked), exam):
            # who decodes need not ask each step for it
            suspects = [replace(suspect, severity="note") for suspect in suspects]
        if any(suspect.kind == "cache-lost" for suspect in suspects):
            roomy = with_room(variant, TOKENS)
            if roomy is not None and _is_right(_decoder(exam, roomy), exam):
                # how many tokens are kept is a number that who builds it gives
                exam.examined["cache"] = True
                return out
        out += suspects
        if cache.way is not None or cache.breaches:
            exam.examined["cache"] = True
        elif cache.names and variant is plan:
            exam.examined["cache"] = Missed("doctor.missed.cache_unknown", {"name": ", ".join(cache.names)})
        if suspects or exam.examined["cache"] is not True:
            # what is wrong without a flag is wrong with it
            return out
        out += _with_windows(decoder, exam)
    return out


def _is_right(decoder: Decoder, exam: Examination) -> bool:
    """Whether a way to decode is found in which no fault is."""
    cache = kept(decoder)
    suspects = cache_suspects(decoder, cache, is_published=exam.is_published)
    return cache.way is not None and all(suspect.severity != "fault" for suspect in suspects)


def _alone(exam: Examination, plan: Plan) -> Plan:
    """The plan without keys of their own where they may be left out: beside a cache these may mean another memory."""
    spare = {parameter.name for parameter in parameters(callee(plan.target)) if parameter.default is None}
    call = {name: each for name, each in plan.call.items() if name not in spare or call_role(name) not in KEYS}
    if len(call) == len(plan.call):
        return plan
    alone = replace(plan, call=call)
    return alone if exam.run(plan=alone).failure is None else plan


def _has_memory(plan: Plan, apart: Plan) -> bool:
    """Whether one argument, keys and values in one, has as many tokens as there are queries, and might have others, as
    another plan gives it.
    """
    names = [name for name, given in plan.call.items() if not name.startswith("_") and "L" in axes_of(given)]
    return len([name for name in names if "S" in axes_of(apart.call.get(name))]) == 1


def _decoder(exam: Examination, plan: Plan) -> Decoder:
    return Decoder(
        plan, {**plan.sizes(0), **exam.sizes, "L": TOKENS}, exam.user_files, exam.dtype, exam.change, exam.stand_ins
    )


def _with_windows(decoder: Decoder, exam: Examination) -> list[Suspect]:
    """What is wrong with a cache once a window leaves the first of the tokens behind, and once each number that a class
    has by itself is as small: what is left behind by any of them is so with a cache as without one.
    """
    plan = decoder.plan
    windows = [symbol.name for symbol in plan.symbols if init_role(symbol.said) == "window" and not symbol.equals]
    built = parameters(plan.target) if isinstance(plan.target, type) else []
    numbers = [parameter.name for parameter in built if type(parameter.default) is int
               and parameter.default > WINDOW and parameter.name not in plan.init]  # fmt: skip
    ways = [replace(decoder, sizes={**decoder.sizes, **dict.fromkeys(windows, WINDOW)})] if windows else []
    ways += [replace(decoder, plan=replace(plan, init={**plan.init, name: WINDOW})) for name in numbers]
    for way in ways if not exam.is_published else ():
        narrow = replace(way, place=DecodingStep(), wholes={})
        before, after = decoder.whole(TOKENS), narrow.whole(TOKENS)
        pair = [each.outputs[0] for each in (before, after) if each.error is None]
        if len(pair) < 2 or pair[0].shape != pair[1].shape or torch.equal(*pair):
            continue
        suspects = cache_suspects(narrow, kept(narrow), is_published=False)
        if proved := [suspect for suspect in suspects if suspect.proved and suspect.severity == "fault"]:
            return proved
    return []


def cache_suspects(decoder: Decoder, cache: Kept, *, is_published: bool) -> list[Suspect]:
    """What is wrong with a cache, of the ways in which its law does not hold."""
    out: list[Suspect] = []
    for breach in sorted(cache.breaches, key=lambda breach: breach.is_chunk):
        if out:
            break
        suspects = _explained(decoder, breach)
        if cache.way is not None:
            # handed on so, it runs and counts: that another cut fails is no guess
            suspects = [
                replace(suspect, guess="") if suspect.kind == "cache-raises" else suspect for suspect in suspects
            ]
        if is_published:
            # what is unusual is so on purpose: the call that was found out may not be the one that was meant
            suspects = [suspect for suspect in suspects if suspect.proved]
        weighed = [_weighed(suspect, breach, decoder) for suspect in suspects]
        # what no word calls a cache keeps what it likes
        out += [suspect for suspect in weighed if suspect.severity == FAULT or not breach.way.is_renewed]
        if is_published and out and all(suspect.severity != "fault" for suspect in out):
            out = []
    return out


def _weighed(suspect: Suspect, breach: Breach, decoder: Decoder) -> Suspect:
    """A fault; where only several tokens after a cache go wrong, a warning, unless the mask or the class is made for
    them.

    What is kept without its gradient is a memory of the segment before (Transformer-XL, arXiv:1901.02860, section 3.2),
    and how many tokens that holds is a choice.
    """
    if suspect.kind == "cache-lost" and _is_segment_memory(decoder, breach):
        return replace(suspect, severity="warning")
    # what is never called without a cache has several tokens after one whenever it has several
    required = {parameter.name for parameter in parameters(callee(decoder.plan.target)) if parameter.default is EMPTY}
    is_step = suspect.kind == "cache-step-differs" and not required.isdisjoint(breach.way.names)
    if not (breach.is_chunk or (is_step and max(breach.cuts) > 1)) or suspect.values.get("made") == "rectangle":
        return suspect
    is_unnamed = suspect.kind in ("causal-cache", "cache-step-differs")
    severity = FAULT if is_for_chunks(decoder.plan.target) else WARNING
    return replace(suspect, severity=severity, kind="cache-chunk" if is_unnamed else suspect.kind)


def _is_segment_memory(decoder: Decoder, breach: Breach) -> bool:
    """Whether what holds tokens is cut off from its gradient, and those are the latest ones; weights that are kept to
    be looked at hold none.
    """
    decoded = decoder.parts(breach.way, breach.cuts, recorded=True)
    cut_off = [entry for entry in in_call(decoded, 0) if entry.last == "detach"]
    if not any(marks is not None and marks.kind == "token" for entry in cut_off for marks in entry.output_marks):
        return False
    attention, end = attention_of(decoded, breach.at), sum(breach.cuts[: breach.at + 1])
    places = [] if attention is None else [places_of(side.t) for side in sides(attention) if side.name != "q"]
    return all(kept == set(range(min(kept, default=end), end)) for kept in places)


def _explained(decoder: Decoder, breach: Breach) -> list[Suspect]:
    decoded = decoder.parts(breach.way, breach.cuts, recorded=True, again=breach.again)
    if breach.again:
        joined = next((entry for entry in in_call(decoded, 0) if joins(entry)), None)
        span = None if joined is None else joined.span
        return [Suspect("cache-stale", span, proved=False, evidence=_far(breach))]
    if decoded.run is None:
        return []
    if breach.error is not None:
        return raised_suspects(decoder, breach, decoded)
    attention = attention_of(decoded, breach.at)
    if attention is None:
        return []
    return (
        _disordered(decoder, breach, decoded)
        or lost_suspects(decoder, breach, decoded, attention)
        or unmasked_suspects(decoder, breach, attention)
        or wide_suspects(decoder, breach, decoded)
        or transplanted_suspects(decoder, breach, decoded, attention)
        or unexplained_suspects(decoder, breach, decoded, attention)
    )


def _far(breach: Breach) -> str:
    return f"{breach.distance:.4g}"


def _disordered(decoder: Decoder, breach: Breach, decoded: Decoded) -> list[Suspect]:
    """New tokens joined before those that came earlier."""
    joins = [entry for entry in in_call(decoded, breach.at) if entry.last in JOINS and entry.output_marks]
    wrong = [entry for entry in joins if is_falling(entry.output_marks[0])]
    if not wrong:
        return []
    stand_ins = {entry.site: _turned(entry) for entry in wrong}
    if breach_of(decoder, breach.way, breach.cuts, stand_ins=stand_ins) is not None:
        return []
    tokens = [entry for entry in joins if (marks := entry.output_marks[0]) is not None and marks.kind == "token"]
    # where the keys alone or the values alone are joined so, these no longer belong together
    kind = "cache-order" if len(tokens) == len(wrong) else "cache-order-mismatch"
    return [Suspect(kind, wrong[0].span, Repair(stand_ins), proved=True, evidence=_far(breach))]


def _turned(entry: MarkedOp) -> Callable[..., Any]:
    function = entry.function

    def right(*args: Any, **options: Any) -> Any:
        parts = args[0] if args else options.get("tensors", ())
        if not isinstance(parts, tuple | list):
            return function(*args, **options)
        rest = {name: each for name, each in options.items() if name != "tensors"}
        return function(list(reversed(parts)), *args[1:], **rest)

    return right
