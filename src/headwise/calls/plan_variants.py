"""Plan variants: plans and drafts that are as another in all but one thing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from headwise.calls.constructor_arguments import Draft
from headwise.calls.plan import Named, Plan, evaluated
from headwise.calls.symbols import LEGEND, alike, spoken
from headwise.calls.trial import Attempt
from headwise.calls.user_values import pinned

__all__ = [
    "crossed", "divisible", "evened", "has_queries", "keeps_samples", "keeps_tokens", "lasting",
    "pinned_to", "unbuilt_drafts",
]  # fmt: skip

# every usual number of groups of channels divides it
GROUPED = 32


def crossed(ran: Plan, among: Sequence[Plan]) -> Plan | None:
    """Of plans with keys of a length of their own, the one that is as a plan in all else, or at least in its layout."""
    if "2*L-1" in spoken_shapes(ran):
        # one for each distance between tokens of the same sequence
        return None
    own = [each for each in among if each.init == ran.init and each.call.get("_layout") == ran.call.get("_layout")]
    same = (
        each
        for each in own
        if {name: alike(value) for name, value in each.call.items() if name in ran.call}.items() <= ran.call.items()
    )
    return next(same, next(iter(own), None))


def keeps_tokens(plan: Plan, query: str, ran: Callable[[Plan], Attempt]) -> bool:
    """Whether what comes out under a mask is of the samples and tokens that came in. ran: makes the smallest run."""
    shape, sizes = plan.call.get(query), plan.sizes(-1)
    if not plan.mask or not isinstance(shape, list):
        return True
    have = [evaluated(str(each), sizes) for each in shape[:2]]
    out = ran(plan).shapes[0]
    return len(out) < len(have) or list(out[: len(have)]) == have


def keeps_samples(plan: Plan, ran: Callable[[Plan], Attempt]) -> bool:
    """Whether what comes out, if it has axes, has one as long as the batch. ran: makes the smallest run."""
    out = ran(plan).shapes[0]
    return len(out) == 0 or plan.sizes(-1).get("B") in out


def lasting(plan: Plan, runs: Callable[[Plan], bool]) -> Plan | None:
    """A plan that runs with all sizes, or with few tokens, as what has places for so many does; None: neither."""
    if runs(plan):
        return plan
    few = tuple(
        replace(each, is_small=True) if each.name in ("L", "S") and not each.equals and each.fixed is None else each
        for each in plan.symbols
    )
    short = replace(plan, symbols=few)
    return short if few != plan.symbols and runs(short) else None


def spoken_shapes(plan: Plan) -> set[str]:
    """The axes of what a plan calls with, as they are written."""
    return {axis for value in plan.call.values() if isinstance(value, list) for axis in map(str, value)}


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


def evened(given: Mapping[str, Named], known: Mapping[str, Named]) -> dict[str, Named]:
    """What the person's symbols stand for, even where a draft tries them so."""
    return {
        name: replace(each, even=True) if name in known and known[name].even and not each.equals else each
        for name, each in given.items()
    }


def unbuilt_drafts(given: Mapping[str, Named], lengths: Sequence[int], *, has_heads: bool) -> list[Draft]:
    """The drafts of what is not built: its sizes alone. lengths: that it may insist on."""
    known = {"D": replace(LEGEND["D"], equals="H*d")} if has_heads else {}
    known |= given
    even = {name: replace(known.get(name, LEGEND[name]), even=True) for name in ("d", "D")}
    even = {name: each for name, each in even.items() if not each.equals and each.fixed is None}
    fixed = [{"L": replace(LEGEND["L"], fixed=each)} for each in lengths]
    return [Draft({}, known), Draft({}, {**known, **even}), *(Draft({}, {**known, **each}) for each in fixed)]


def divisible(draft: Draft) -> Draft:
    """A draft whose width is a multiple of what channels are grouped by."""
    width = draft.known.get("D", LEGEND["D"])
    name = "d" if "d" in spoken(width.equals) else "D"
    return Draft(draft.init, {**draft.known, name: replace(draft.known.get(name, LEGEND[name]), times=GROUPED)})
