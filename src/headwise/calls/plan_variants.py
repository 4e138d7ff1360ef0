"""Plan variants: plans and drafts that are as another in all but one thing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from headwise.calls.constructor_arguments import Draft
from headwise.calls.plan import Named, Plan, evaluated
from headwise.calls.symbols import LEGEND, alike, spoken
from headwise.calls.trial import Attempt
from headwise.calls.user_values import pinned

__all__ = [
    "crossed", "divisible", "evened", "has_queries", "keeps_samples", "keeps_tokens", "lasting",
    "pinned_to", "unbuilt_drafts", "with_more_keys", "with_own_lengths",
]  # fmt: skip

# every usual number of groups of channels divides it
GROUPED = 32


def crossed(ran: Plan, among: Sequence[Plan]) -> Plan | None:
    """Of plans with keys of a length of their own, the one that is as a plan in all else, or at least in its layout."""
    if "2*L-1" in spoken_shapes(ran):
        # one for each distance between tokens of the same sequence
        return None
    similar = [plan for plan in among if plan.init == ran.init and plan.call.get("_layout") == ran.call.get("_layout")]
    same = (
        plan
        for plan in similar
        if {name: alike(value) for name, value in plan.call.items() if name in ran.call}.items() <= ran.call.items()
    )
    return next(same, next(iter(similar), None))


def keeps_tokens(plan: Plan, query: str, ran: Callable[[Plan], Attempt]) -> bool:
    """Whether what comes out under a mask is of the samples and tokens that came in. ran: makes the smallest run."""
    shape, sizes = plan.call.get(query), plan.sizes(-1)
    if not plan.mask or not isinstance(shape, list):
        return True
    have = [evaluated(str(size), sizes) for size in shape[:2]]
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
        replace(symbol, is_small=True)
        if symbol.name in ("L", "S") and not symbol.equals and symbol.fixed is None
        else symbol
        for symbol in plan.symbols
    )
    short = replace(plan, symbols=few)
    return short if few != plan.symbols and runs(short) else None


def with_own_lengths(plan: Plan, runs: Callable[[Plan], bool], renamed: Callable[[Plan], Plan]) -> Plan:
    """A plan whose inputs but the first have a length of their own, as many of them as run so."""
    inputs = [name for name, value in plan.call.items() if "L" in spoken(value) and name != "_mask"][1:]
    for names in dict.fromkeys([tuple(inputs), *((name,) for name in inputs)]):
        call = {name: _with_keys(value) if name in names else value for name, value in plan.call.items()}
        own = renamed(replace(plan, setting="cross", call=call))
        if names and runs(own):
            return own
    return plan


def with_more_keys(plan: Plan, runs: Callable[[Plan], bool], renamed: Callable[[Plan], Plan]) -> Plan | None:
    """A plan with keys of their own in which one input more is as long as they are, as their positions; None: none
    runs.
    """
    for name in [name for name, value in plan.call.items() if "L" in spoken(value) and name != "_mask"][1:]:
        longer = renamed(replace(plan, call={**plan.call, name: _with_keys(plan.call[name])}))
        if runs(longer):
            return longer
    return None


def _with_keys(value: Any) -> Any:
    """A value of `--call` that is as long as keys."""
    if isinstance(value, list):
        return ["S" if each == "L" else each for each in value]
    return {**value, "_ids": _with_keys(value["_ids"])} if isinstance(value, Mapping) and "_ids" in value else value


def spoken_shapes(plan: Plan) -> set[str]:
    """The axes of what a plan calls with, as they are written."""
    return {axis for value in plan.call.values() if isinstance(value, list) for axis in map(str, value)}


def has_queries(plan: Plan) -> bool:
    """Whether a plan has as many queries as one likes, not one alone."""
    return any(symbol.name == "L" for symbol in plan.symbols)


def pinned_to(draft: Draft, numbers: Mapping[str, int]) -> Draft:
    """A draft with sizes that are always a number."""
    init, symbols = pinned({name: size for name, size in numbers.items() if name in draft.init})
    symbols = {**draft.symbols, **symbols}
    wide, heads = symbols.get("D"), symbols.get("H")
    if (
        wide is not None
        and heads is not None
        and wide.fixed
        and heads.fixed
        and symbols.get("d") == draft.symbols.get("d")
    ):
        symbols["d"] = replace(symbols.get("d", LEGEND["d"]), fixed=wide.fixed // heads.fixed)
    return Draft({**draft.init, **init}, symbols)


def evened(symbols: Mapping[str, Named], drafted: Mapping[str, Named]) -> dict[str, Named]:
    """What the person's symbols stand for, even where a draft tries them so."""
    return {
        name: replace(symbol, even=True) if name in drafted and drafted[name].even and not symbol.equals else symbol
        for name, symbol in symbols.items()
    }


def unbuilt_drafts(symbols: Mapping[str, Named], lengths: Sequence[int], *, has_heads: bool) -> list[Draft]:
    """The drafts of what is not built: its sizes alone. lengths: that it may insist on."""
    every = {"D": replace(LEGEND["D"], equals="H*d")} if has_heads else {}
    every |= symbols
    even = {name: replace(every.get(name, LEGEND[name]), even=True) for name in ("d", "D")}
    even = {name: symbol for name, symbol in even.items() if not symbol.equals and symbol.fixed is None}
    fixed = [{"L": replace(LEGEND["L"], fixed=length)} for length in lengths]
    return [Draft({}, every), Draft({}, {**every, **even}), *(Draft({}, {**every, **each}) for each in fixed)]


def divisible(draft: Draft) -> Draft:
    """A draft whose width is a multiple of what channels are grouped by."""
    width = draft.symbols.get("D", LEGEND["D"])
    name = "d" if "d" in spoken(width.equals) else "D"
    return Draft(draft.init, {**draft.symbols, name: replace(draft.symbols.get(name, LEGEND[name]), times=GROUPED)})
