"""Own sizes: a plan in which each size that nothing ties to another one varies by itself, under its own name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from headwise.calls.plan import Named, Plan
from headwise.calls.roles import init_role
from headwise.calls.signature import parameters
from headwise.calls.symbols import spoken
from headwise.calls.trial import PROBES, attempted, quiet
from headwise.recording import Budget, record

__all__ = ["with_own_sizes"]

# an operation, and the shapes of its results
Shapes = tuple[str, tuple[tuple[int, ...], ...]]
# how many times a layer is repeated, and places in a table, are no sizes of a tensor
UNSIZED = frozenset({"layers", "place", "kernel", "dropout", "number", "flag", "batch"})
# work for what is given by default, and for what shares a size
LONGEST = 5_000
# each further symbol makes the others larger
MOST = 6


def with_own_sizes(plan: Plan) -> Plan:
    """A plan of the same call in which whole numbers of the constructor, given by default, have their own symbols
    where shapes follow them, and parameters that were given one size have one each where the code runs so.

    >>> class Pool(nn.Module):
    ...     def __init__(self, dim, n_seeds=4):
    ...         super().__init__()
    ...         self.seeds = nn.Parameter(torch.zeros(n_seeds, dim))
    ...     def forward(self, x):
    ...         return (self.seeds @ x.mT).softmax(-1) @ x
    >>> symbols = (Named("B", "batch"), Named("L", "queries"), Named("D", "width"))
    >>> dict(with_own_sizes(Plan(Pool, "self", {"dim": "D"}, {"x": ["B", "L", "D"]}, symbols)).init)
    {'dim': 'D', 'n_seeds': 'n_seeds'}
    """
    if not isinstance(plan.target, type) or not _runs(plan):
        return plan
    return _apart(_freed(_unbound(plan)))


def _unbound(plan: Plan) -> Plan:
    """A plan whose model width is not that of the heads, where these have a width by itself and the code runs so."""
    wide = next((symbol for symbol in plan.symbols if symbol.name == "D" and symbol.equals), None)
    if wide is None or "d" not in plan.init.values():
        return plan
    symbols = tuple(replace(each, equals="") if each is wide else each for each in plan.symbols)
    init = {name: wide.name if value == wide.equals else value for name, value in plan.init.items()}
    free = replace(plan, symbols=symbols, init=init)
    return free if _runs(free) else plan


def _freed(plan: Plan) -> Plan:
    """A plan with symbols for whole numbers that the constructor has by default."""
    shapes = _shapes(plan, {})
    count, budget = 0, Budget(LONGEST)
    for parameter in parameters(plan.target):
        size, name = parameter.default, parameter.name
        is_free = name not in plan.init and all(name != symbol.name for symbol in plan.symbols)
        if (
            count == MOST
            or budget.is_over
            or not is_free
            or type(size) is not int
            or size < 1
            or init_role(name) in UNSIZED
        ):
            continue
        if shapes is None or not any(_is_followed(shapes, _shapes(plan, {name: other})) for other in (size + 1, 2)):
            continue
        for least in (0, size):
            symbol = Named(name, "parameter", name, least=least, is_small=not least)
            init = {**plan.init, name: name}
            freed = replace(plan, init=init, symbols=(*plan.symbols, symbol), real={**plan.real, name: size})
            if _runs(freed):
                plan, count, shapes = freed, count + 1, _shapes(freed, {})
                break
    return plan


def _apart(plan: Plan) -> Plan:
    """A plan whose parameters of one size have one each, as far as the code takes them."""
    budget = Budget(LONGEST)
    for name in plan.init:
        if budget.is_over:
            break
        size = plan.init[name]
        holders = [each for each, value in plan.init.items() if value == size]
        is_taken = any(name == symbol.name for symbol in plan.symbols)
        if len(holders) < 2 or is_taken or not isinstance(size, str) or not _is_made_of(size, plan):
            continue
        # the alias of a width is the name of a parameter that still has it
        other = next(each for each in holders if each != name)
        symbols = (
            *(replace(each, said=other) if each.said == name else each for each in plan.symbols),
            Named(name, "parameter", name),
        )
        init = {**plan.init, name: name}
        ways = (replace(plan, init=init, call=call, symbols=symbols) for call in _calls(plan, size, name))
        plan = next((way for way in ways if _runs(way)), plan)
    return plan


def _is_made_of(size: str, plan: Plan) -> bool:
    """Whether a value of the constructor is a size."""
    names = set(spoken(size))
    return bool(names) and names <= {symbol.name for symbol in plan.symbols}


def _calls(plan: Plan, size: str, name: str) -> Iterator[Mapping[str, Any]]:
    """A call with a new size in the last axis of none of its arguments, and of each one by itself."""
    alike = {size, *(symbol.name for symbol in plan.symbols if symbol.equals == size)}
    yield plan.call
    for argument, shape in plan.call.items():
        if isinstance(shape, list) and shape and shape[-1] in alike:
            yield {**plan.call, argument: [*shape[:-1], name]}


def _runs(plan: Plan) -> bool:
    return all(attempted(plan, probe, finite=False).error is None for probe in range(PROBES))


def _is_followed(before: set[Shapes], after: set[Shapes] | None) -> bool:
    """Whether the same operations have other shapes."""
    return after is not None and after != before and {name for name, _ in after} == {name for name, _ in before}


def _shapes(plan: Plan, init: Mapping[str, Any]) -> set[Shapes] | None:
    """The operations of a run, each with its shapes; None: it raises. init: further arguments of the constructor."""
    sizes = plan.sizes(-1)
    varied = replace(plan, init={**plan.init, **init})
    with quiet(), torch.no_grad():
        try:
            target = varied.build(sizes)
            args, options = varied.arguments(sizes)
        except Exception:  # noqa: BLE001  a constructor may raise anything: this size is not free
            return None
        recording = record(lambda: target(*args, **options), model=target if isinstance(target, nn.Module) else None)
    if recording.failure is not None:
        return None
    return {(op.name, tuple(output.shape for output in op.outputs)) for op in recording.operations}
