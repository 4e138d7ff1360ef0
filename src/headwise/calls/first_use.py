"""First use: what kind of tensor each argument of a call is, told by what the code first does with it.

A call is run with arguments that are not made yet. Each is made when an operation takes it, of the kind and the shape
that this operation needs: with whole numbers where rows of a table are looked up, as wide as a weight is, with as many
axes as its shape is unpacked into. What the code does not tell is as in the call that is begun with.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from headwise.calls.argument_axes import last
from headwise.calls.failed_statement import statements_at
from headwise.calls.operation_demands import Demanded, Demands, Unmade
from headwise.calls.plan import Plan, evaluated
from headwise.calls.roles import call_role
from headwise.calls.symbols import alike, layout_of
from headwise.calls.trial import in_single, quiet

__all__ = ["as_used"]

# what a tensor is asked that leaves open what it is
PLAIN = frozenset({
    "device", "dtype", "requires_grad", "is_cuda", "is_floating_point", "element_size", "layout", "size", "shape",
    "dim", "ndim", "ndimension", "numel",
})  # fmt: skip
# how often a run is begun anew
ANEW = 4
# what may be None where it has no default
LEFT_OUT = ("mask", "bias", "lengths", "cache", "flag", "segments")


class _ToldLate(Exception):
    """What an argument is was told after it was made."""


class _FirstUses:
    """One run of a plan whose inputs are made at their first use. masks: arguments that are used as masks, left out."""

    def __init__(self, plan: Plan, masks: Collection[str]) -> None:
        self.plan, self.sizes, self.masks = plan, plan.sizes(-1), masks
        self.arguments: dict[str, Demanded] = {}
        self.demands = Demands(plan, self.sizes)
        self.generator = torch.Generator().manual_seed(0)

    def handed(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a call, inputs not made yet."""
        first = next((value for value in self.plan.call.values() if isinstance(value, list)), ["B", "L", "D"])
        for name in options:
            value = self.plan.call.get(name)
            is_open = value is None and name not in self.masks and call_role(name) not in LEFT_OUT
            if isinstance(value, list) or is_open:
                self.arguments[name] = Demanded(list(value or first), is_open=is_open)
            elif isinstance(value, Mapping) and "_ids" in value:
                self.arguments[name] = Demanded(list(value["_ids"]), value["below"], has_width=False)
        return {**options, **{name: Unmade.of(argument, self.operation) for name, argument in self.arguments.items()}}

    def operation(self, func: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Do an operation, and make before it what it takes."""
        name = getattr(func, "__name__", "")
        owner = getattr(getattr(func, "__self__", None), "__name__", "") if name == "__get__" else name
        first = args[0] if args and isinstance(args[0], Unmade) else None
        if name == "__index__" and first is not None:
            first.argument.is_count = True
            raise _ToldLate
        if first is not None and first.argument.made is None:
            if owner in ("shape", "size") and len(args) == 1 and not kwargs:
                return _Shape(self, first)
            if owner in PLAIN:
                return func(self._tensor_of(first, peek=True), *args[1:], **kwargs)
        self.demands.note(name, args, kwargs)
        args, kwargs = self._replaced(args), self._replaced(kwargs)
        return func(*args, **kwargs)

    def _tensor_of(self, unmade: Unmade, *, peek: bool = False) -> Tensor:
        argument = unmade.argument
        if argument.made is not None:
            return argument.made
        shape = [evaluated(axis, self.sizes) if isinstance(axis, str) else int(axis) for axis in argument.axes]
        if argument.below:
            tensor = torch.randint(0, max(1, evaluated(argument.below, self.sizes)), shape, generator=self.generator)
            tensor = tensor.bool() if argument.is_truth else tensor
        else:
            tensor = torch.randn(shape, generator=self.generator)
        if not peek:
            argument.made = tensor
        return tensor

    def sizes_of(self, unmade: Unmade) -> torch.Size:
        return self._tensor_of(unmade, peek=True).shape

    def _replaced(self, value: Any) -> Any:
        if isinstance(value, Unmade):
            return self._tensor_of(value)
        if isinstance(value, dict):
            return {key: self._replaced(part) for key, part in value.items()}
        if type(value) in (list, tuple):
            return type(value)(map(self._replaced, value))
        return value


class _Shape:
    """The shape of an argument that is not made: whoever unpacks it tells how many axes it has."""

    def __init__(self, run: _FirstUses, unmade: Unmade, part: slice | None = None) -> None:
        self.run, self.unmade, self.part = run, unmade, part

    def __iter__(self) -> Iterator[int]:
        frame = sys._getframe(1)
        if (names := _names_at(frame)) is not None:
            self.run.demands.note_unpacked(self.unmade.argument, names, is_whole=self.part is None)
        return iter(self._sizes())

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice) and self.part is None and not at.start and (at.stop or 0) > 0:
            return _Shape(self.run, self.unmade, at)
        return self._sizes()[at]

    def __len__(self) -> int:
        return len(self._sizes())

    def __eq__(self, other: object) -> bool:
        return self._sizes() == (other._sizes() if isinstance(other, _Shape) else other)

    def __hash__(self) -> int:
        return hash(self._sizes())

    def __add__(self, other: Any) -> Any:
        return self._sizes() + tuple(other)

    def numel(self) -> int:
        return self._sizes().numel()

    def _sizes(self) -> torch.Size:
        sizes = self.run.sizes_of(self.unmade)
        return sizes if self.part is None else sizes[self.part]


def _names_at(frame: FrameType) -> list[str] | None:
    """Into which names a frame unpacks what it iterates over; None: it does something else."""
    around = statements_at(frame, frame.f_lineno)
    statement = around[0] if around else None
    if not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Tuple):
        return None
    targets = statement.targets[0].elts
    beside = len(statement.value.elts) - 1 if isinstance(statement.value, ast.Tuple) else 0
    if any(isinstance(target, ast.Starred) for target in targets):
        return None
    return [last(target) for target in targets][: len(targets) - beside]


def as_used(plan: Plan, renamed: Callable[[Plan], Plan], masks: Collection[str]) -> Plan | None:
    """A plan with its inputs as the code uses them first, all of one length; None: that tells no more than the plan.
    renamed: gives a plan the symbols that its call uses. masks: arguments that are used as masks.
    """
    plan = renamed(replace(plan, setting="self", call={name: alike(value) for name, value in plan.call.items()}))
    call = dict(plan.call)
    for _ in range(ANEW):
        run = _FirstUses(replace(plan, call=call), masks)
        with quiet():
            try:
                target = in_single(plan.build(run.sizes), plan)
                args, options = run.plan.arguments(run.sizes)
                target(*args, **run.handed(options))
            except _ToldLate:
                call |= {name: each.value for name, each in run.arguments.items() if each.is_count}
                continue
            except Exception:  # noqa: BLE001  what was learned before it failed stands
                pass
        break
    call |= {name: each.value for name, each in run.arguments.items()}
    if call == plan.call:
        return None
    layout = layout_of(next((axes for axes in call.values() if isinstance(axes, list)), []))
    call = {**{name: value for name, value in call.items() if name != "_layout"}, **layout}
    return renamed(replace(plan, call=call))
