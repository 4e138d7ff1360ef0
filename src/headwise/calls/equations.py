"""Equations: the sizes of the symbols of a plan that numbers in its places tell, and plans that keep to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from headwise.calls.plan import Named, Plan, evaluated
from headwise.calls.symbols import LEGEND, spoken

__all__ = ["declared_sizes", "fixed_at", "loosened", "solved"]

# a length that is written with + - or // is looked for up to this
LARGEST = 4096


def solved(pairs: Sequence[tuple[str, int]], symbols: Sequence[Named]) -> dict[str, int] | None:
    """The sizes of symbols with which each expression is its number; None: there are none."""
    out = {symbol.name: symbol.fixed for symbol in symbols if symbol.fixed is not None}
    equals = {symbol.name: symbol.equals for symbol in symbols if symbol.equals}
    for _ in range(len(pairs) + len(equals) + 1):
        before = len(out)
        for expression, value in pairs:
            _solve(expression, value, out)
        for name, expression in equals.items():
            if name in out:
                _solve(expression, out[name], out)
            elif set(spoken(expression)) <= set(out):
                out[name] = evaluated(expression, out)
        if len(out) == before:
            break
    every = [*pairs, *((expression, out[name]) for name, expression in equals.items() if name in out)]
    return out if all(_fits(expression, value, out) for expression, value in every) else None


def _fits(expression: str, value: int, sizes: Mapping[str, int]) -> bool:
    """Whether an expression can be the value, as far as its symbols are known."""
    if set(spoken(expression)) <= set(sizes):
        return evaluated(expression, sizes) == value
    parts = [sizes[each] for each in factors_of(expression) if each in sizes]
    return all(value % part == 0 for part in parts)


def factors_of(expression: str) -> list[str]:
    """The factors of a product of names and numbers; none where it is another expression."""
    factors = expression.split("*")
    return factors if all(factor.isidentifier() or factor.isdigit() for factor in factors) else []


def _solve(expression: str, value: int, sizes: dict[str, int]) -> None:
    """Learn the one symbol of an expression that is not known."""
    unknown = sorted(set(spoken(expression)) - set(sizes))
    if len(unknown) != 1:
        return
    name, factors = unknown[0], factors_of(expression)
    if factors.count(name) == 1:
        rest = 1
        for factor in factors:
            rest *= 1 if factor == name else int(factor) if factor.isdigit() else sizes[factor]
        if rest and value % rest == 0:
            sizes[name] = value // rest
        return
    fitting = (size for size in range(1, LARGEST) if evaluated(expression, {**sizes, name: size}) == value)
    size = next(fitting, None)
    if size is not None:
        sizes[name] = size


def fixed_at(plan: Plan, sizes: Mapping[str, int], part: str) -> Plan:
    """A plan whose symbols are always the sizes that are known of them.

    part: "call": those that nothing is built with; "init": those that something is built with; "all".
    """
    built = set(spoken(list(plan.init.values()))) | {symbol.name for symbol in plan.symbols if symbol.equals}
    names = {name for name in sizes if part == "all" or (name in built) == (part == "init")}
    symbols = [
        replace(symbol, fixed=sizes[symbol.name], equals="") if symbol.name in names else symbol
        for symbol in plan.symbols
    ]
    wide, heads = sizes.get("D", 0), sizes.get("H", 0)
    if {"D", "H"} <= names and wide % heads == 0 and all(symbol.name != "d" for symbol in symbols):
        # what is shared out to the heads is as wide, whatever it is called
        symbols.append(replace(LEGEND["d"], fixed=wide // heads))
    return replace(plan, symbols=tuple(symbols))


def declared_sizes(plan: Plan, others: Mapping[str, int]) -> dict[str, int]:
    """The sizes that were declared, and others of what was left open. Where only a product was, its factors make it."""
    out = {**others, **plan.real}
    equals = {symbol.name: symbol.equals for symbol in plan.symbols if symbol.equals}
    for name in (each for each in equals if each in plan.real):
        rest, unknown = plan.real[name], list[str]()
        for factor in _free_factors(name, plan.real, equals):
            if factor.isdigit() or factor in plan.real:
                rest //= int(factor) if factor.isdigit() else out[factor]
            else:
                unknown.append(factor)
        for factor in unknown[:-1]:
            out[factor] = next((part for part in range(2, rest) if rest % part == 0), 1)
            rest //= out[factor]
        out |= dict.fromkeys(unknown[-1:], rest)
    for name, expression in equals.items():
        out[name] = evaluated(expression, out)
    return out


def _free_factors(name: str, sizes: Mapping[str, int], equals: Mapping[str, str]) -> list[str]:
    """What a product is made of: whole numbers, known sizes, and free symbols."""
    out: list[str] = []
    for factor in factors_of(equals[name]):
        is_made = factor in equals and factor not in sizes
        out += _free_factors(factor, sizes, equals) if is_made else [factor]
    return out


def loosened(plan: Plan, named: Callable[[Plan], Plan], runs: Callable[[Plan], bool]) -> Plan:
    """A plan that runs with fixed sizes, with as many of them free as it still runs with.

    named: the plan with all its symbols as they are where nothing is declared.
    """
    free = {symbol.name: symbol for symbol in named(plan).symbols}
    bound = {symbol.name for symbol in free.values() if symbol.equals}
    out = plan
    for name in (each for each in free if each not in bound):
        # what is made of it varies with it
        derived = {each for each in bound if name in spoken(free[each].equals)}
        symbols = tuple(
            free.get(symbol.name, symbol) if symbol.name in {name, *derived} else symbol for symbol in out.symbols
        )
        wider = replace(out, symbols=symbols)
        if wider != out and runs(wider):
            out = wider
    return out
