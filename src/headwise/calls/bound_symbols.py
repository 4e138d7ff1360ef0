"""Bound symbols: the symbols of a plan that are free, and plans in which some are bound to others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from headwise.calls.plan import Named, Plan
from headwise.calls.symbols import bases, spoken

__all__ = ["bound_to", "expressions_of", "free_of", "inputs_of", "with_times"]


def free_of(plan: Plan) -> dict[str, Named]:
    """The symbols that may have any size."""
    return {symbol.name: symbol for symbol in plan.symbols if not symbol.equals and symbol.fixed is None}


def bound_to(plan: Plan, bound: Mapping[str, str]) -> Plan:
    """A plan whose symbols are what they must be; what they are made of is not made of them."""
    by_name = {symbol.name: replace(symbol, equals=bound.get(symbol.name, symbol.equals)) for symbol in plan.symbols}
    bound = {name: size for name, size in bound.items() if not bound.keys() & bases(size, by_name)}
    return replace(plan, symbols=tuple(replace(s, equals=bound.get(s.name, s.equals)) for s in plan.symbols))


def inputs_of(plan: Plan) -> set[str]:
    """The symbols of the axes of inputs that nothing is built with."""
    built = set(spoken(list(plan.init.values())))
    used = set(spoken([value for name, value in plan.call.items() if name != "_layout"])) - built
    return {symbol.name for symbol in plan.symbols} & used


def expressions_of(names: Sequence[str]) -> Iterator[str]:
    """What a size may be made of, the simplest first."""
    yield from names
    yield from (f"{name}{more}" for name in names for more in ("+1", "-1"))
    yield from (f"{a}*{b}" for at, a in enumerate(names) for b in names[at:])
    yield from (f"{factor}*{name}" for factor in (2, 3, 4) for name in names)


def with_times(plan: Plan, name: str, factor: int) -> Plan:
    """A plan one of whose symbols is a multiple of a factor."""
    return replace(plan, symbols=tuple(replace(s, times=factor) if s.name == name else s for s in plan.symbols))
