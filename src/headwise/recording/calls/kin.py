"""Kin: plans and drafts that are as another in all but one thing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from headwise.recording.calls.drafts import Draft
from headwise.recording.calls.given import pinned
from headwise.recording.calls.plan import Plan
from headwise.recording.calls.symbols import LEGEND, alike

__all__ = ["crossed", "has_queries", "pinned_to"]


def crossed(ran: Plan, among: Sequence[Plan]) -> Plan | None:
    """Of plans with keys of a length of their own, the one that is as a plan in all else, or at least in its layout."""
    own = [each for each in among if each.init == ran.init and each.call.get("_layout") == ran.call.get("_layout")]
    same = (
        each
        for each in own
        if {name: alike(value) for name, value in each.call.items() if name in ran.call}.items() <= ran.call.items()
    )
    return next(same, next(iter(own), None))


def has_queries(plan: Plan) -> bool:
    """Whether a plan has as many queries as one likes, not one alone."""
    return any(each.name == "L" for each in plan.symbols)


def pinned_to(draft: Draft, numbers: Mapping[str, int]) -> Draft:
    """A draft with sizes that are always a number."""
    init, known = pinned({name: size for name, size in numbers.items() if name in draft.init})
    known = {**draft.known, **known}
    wide, heads = known.get("D"), known.get("H")
    if wide is not None and heads is not None and wide.fixed and heads.fixed and known.get("d") == draft.known.get("d"):
        known["d"] = replace(known.get("d", LEGEND["d"]), fixed=wide.fixed // heads.fixed)
    return Draft({**draft.init, **init}, known)
