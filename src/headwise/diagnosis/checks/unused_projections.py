"""Unused projections: projections whose output nobody reads, and those that one side goes without."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor, nn

from headwise.dataflow import LAYERS, MarkedOp, Run, attentions, call_of
from headwise.diagnosis.checks.inputs import TargetModule, makings
from headwise.diagnosis.checks.projection_names import role_of
from headwise.diagnosis.checks.unread_parts import read_for
from headwise.diagnosis.modules import module_at
from headwise.diagnosis.patches.names import called_instead
from headwise.diagnosis.repair import Repair
from headwise.diagnosis.suspects import Suspect
from headwise.recording import Site
from headwise.source import Code, Span, alias_after, bound_to, code_at

__all__ = ["called_twice", "discarded", "end_of", "is_unkept", "last_of", "named_again", "unmade"]


def discarded(run: Run, cut: Sequence[str]) -> list[Suspect]:
    """Where a layer is called, and what it gives is given no name, or one that is read nowhere.

    cut: the names of the parameters that are used and get no gradient.
    """
    if not isinstance(run.target, nn.Module):
        return []
    names_of = {each.untyped_storage().data_ptr(): name for name, each in run.target.named_parameters() if name in cut}
    taken = {tensor.number for entry in run.seen for tensor in entry.inputs}
    for entry in run.seen:
        names = [names_of.get(tensor.untyped_storage().data_ptr(), "") for tensor in entry.tensors]
        owner = next((name.rpartition(".")[0] for name in names if name), "") or _layer(run.target, entry, cut)
        last = _last_moved(run, entry) if owner and entry.is_marked else None
        if last is None or any(output.number in taken for output in last.outputs):
            continue
        span = next((each for each in (last.span, *reversed(last.operation.chain)) if is_unkept(each)), None)
        if span is not None:
            stand_ins, change = _read_on(run, entry, owner) if last is entry else ({}, None)
            place = read_for(span) or span
            return [Suspect("projection-discarded", place, Repair(stand_ins, change=change), values={"name": owner})]
    return []


def _last_moved(run: Run, entry: MarkedOp) -> MarkedOp:
    """The last operation that moves what an operation gives, where each is taken by one other and changed by none."""
    last = entry
    while True:
        takers = [op for op in run.seen if op.at > last.at and last.results & op.taken]
        if len(takers) != 1 or not takers[0].is_movement:
            return last
        last = takers[0]


def _layer(target: nn.Module, entry: MarkedOp, cut: Sequence[str]) -> str:
    """The name of torch's own layer that an operation is, all of whose parameters get no gradient; "": it is none."""
    layers = [(name, each) for name, each in target.named_modules() if type(each).__name__ == entry.last in LAYERS]
    return next(
        (name for name, each in layers if all(f"{name}.{key}" in cut for key, _ in each.named_parameters())), ""
    )


def is_unkept(span: Span) -> bool:
    """Whether a statement keeps what it computes in no name that its function reads."""
    code = code_at(span)
    if code is None:
        return False
    around = [code.node, *code.around(code.node)]
    statement = next((outer for outer in around if isinstance(outer, ast.stmt)), None)
    function = next((outer for outer in around if isinstance(outer, ast.FunctionDef)), None)
    if function is None:
        return False
    if isinstance(statement, ast.Expr):
        return code.node in (statement, statement.value)
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1 or not _is_all(code, statement):
        return False
    goal = statement.targets[0]
    names = goal.elts if isinstance(goal, ast.Tuple) else [goal]
    read = {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    return all(isinstance(name, ast.Name) and name.id not in read for name in names)


def _is_all(code: Code, statement: ast.Assign) -> bool:
    return statement.value is code.node or code.node is statement


def _read_on(run: Run, entry: MarkedOp, owner: str) -> tuple[dict[Site, Callable[..., Any]], Any]:
    """What is projected in vain, taken from there on."""
    module = module_at(run.target, owner) if owner in dict(run.target.named_modules()) else None
    if not isinstance(module, nn.Linear) or module.in_features != module.out_features:
        return {}, None
    number = entry.inputs[0].number
    maker = next((op for op in reversed(run.seen[: entry.at])
                  if any(output.number == number for output in op.outputs)), None)  # fmt: skip
    if maker is None or len(maker.outputs) != 1:
        return {}, None
    holder, function = TargetModule(owner), maker.function

    def right(*args: Any, **options: Any) -> Any:
        return holder.module(function(*args, **options))

    return {maker.site: right}, holder.take


def unmade(run: Run, owner: str) -> Suspect | None:
    """The side of an attention that goes without a projection, where one is registered and never called; None: each has
    its own.
    """
    module = dict(run.target.named_modules(remove_duplicate=False)).get(owner)
    if not isinstance(module, nn.Linear) or not attentions(run):
        return None
    origins = makings(run, attentions(run)[0])
    bare = [origin for origin in origins.values() if origin.projection is None and origin.source is not None]
    if len(origins) != len("qkv") or len(bare) != 1 or role_of(owner) not in ("", bare[0].name):
        return None
    first = bare[0].first
    holder, function, place = TargetModule(owner), first.function, _place(first)
    if place is None or first.inputs[place].shape[-1] != module.in_features:
        return None

    def right(*args: Any, **options: Any) -> Any:
        return function(*args[:place], holder.module(args[place]), *args[place + 1 :], **options)

    span = call_of(run, first)
    return Suspect(
        "projection-unused",
        span,
        Repair({first.site: right}, change=holder.take),
        values={"name": owner},
        home=bound_to(span),
    )


@dataclass(frozen=True, eq=False)
class _Instead:
    """A stand-in for the call of a layer: another one is called."""

    holder: TargetModule

    def __call__(self, x: Tensor, *_: Any, **__: Any) -> Any:
        return self.holder.module(x)


def called_twice(run: Run, owner: str) -> Suspect | None:
    """The second call of a layer that runs at two places, where its twin is registered and runs at none; None: no layer
    of the same sizes does.
    """
    modules = dict(run.target.named_modules(remove_duplicate=False))
    spare = modules.get(owner)
    if not isinstance(spare, nn.Linear):
        return None
    for name, module in modules.items():
        if module is spare or not isinstance(module, nn.Linear) or module.weight.shape != spare.weight.shape:
            continue
        calls = {call_of(run, entry): entry for entry in run.seen if any(t is module.weight for t in entry.tensors)}
        if len(calls) != len(("first", "second")):
            continue
        span, entry = list(calls.items())[-1]
        holder = TargetModule(owner)
        return Suspect(
            "projection-unused",
            span,
            Repair({entry.site: _Instead(holder)}, holder.take, partial(called_instead, name=owner, other=name)),
            values={"name": owner},
        )
    return None


def _place(entry: MarkedOp) -> int | None:
    """Which argument of an operation holds tokens."""
    marked = [tensor for tensor, marks in zip(entry.tensors, entry.given, strict=True) if marks is not None]
    places = [at for at, each in enumerate(entry.args) if isinstance(each, Tensor) and any(each is t for t in marked)]
    return places[0] if places else None


def last_of(run: Run) -> list[MarkedOp]:
    """What was computed of the arguments, but for what drops at the end, which drops what a projection gives."""
    entries = [entry for entry in run.seen if entry.is_marked]
    return entries[:-1] if len(entries) > 1 and "dropout" in entries[-1].last else entries


def end_of(run: Run) -> Span | None:
    """Where the output was last computed."""
    entries = last_of(run)
    if not entries:
        return None
    last = entries[-1].operation
    spans = [*last.chain, last.span]
    return next((span for span in spans if span.function == f"{type(run.target).__qualname__}.forward"), last.span)


def named_again(run: Run) -> Span | None:
    """Where what is projected nowhere is only given another name or returned, if it is."""
    end, is_last = end_of(run), bool(run.seen) and "dropout" not in run.seen[-1].last
    return alias_after(end, returns=True) if is_last and end is not None else None
