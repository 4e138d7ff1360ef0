"""Unused projections: projections whose output nobody reads, and those that one side goes without."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from headwise.dataflow import LAYERS, MarkedOp, Run, attentions, call_of
from headwise.diagnosis.checks.inputs import Held, makings
from headwise.diagnosis.checks.projection_names import role_of
from headwise.diagnosis.members import module_at
from headwise.diagnosis.suspects import Suspect
from headwise.recording import Site, site_of
from headwise.source import Code, Span, alias_after, bound_to, code_at

__all__ = ["called_twice", "discarded", "end_of", "is_unkept", "last_of", "named_again", "unmade"]


def discarded(done: Run, cut: Sequence[str]) -> list[Suspect]:
    """Where a layer is called, and what it gives is given no name, or one that is read nowhere.

    cut: the names of the parameters that are used and get no gradient.
    """
    if not isinstance(done.target, nn.Module):
        return []
    own = {each.untyped_storage().data_ptr(): name for name, each in done.target.named_parameters() if name in cut}
    taken = {each.number for entry in done.seen for each in entry.operation.inputs}
    for entry in done.seen:
        names = [own.get(each.untyped_storage().data_ptr(), "") for each in entry.tensors]
        owner = next((name.rpartition(".")[0] for name in names if name), "") or _layer(done.target, entry, cut)
        is_read = any(made.number in taken for made in entry.operation.outputs)
        if not owner or is_read or not any(each is not None for each in entry.given):
            continue
        span = next(
            (each for each in (entry.operation.span, *reversed(entry.operation.chain)) if is_unkept(each)), None
        )
        if span is not None:
            stand_ins, change = _read_on(done, entry, owner)
            return [Suspect("projection-discarded", span, stand_ins, said={"name": owner}, change=change)]
    return []


def _layer(target: nn.Module, entry: MarkedOp, cut: Sequence[str]) -> str:
    """The name of torch's own layer that an operation is, all of whose parameters get no gradient; "": it is none."""
    layers = [(name, each) for name, each in target.named_modules() if type(each).__name__ == entry.last in LAYERS]
    return next(
        (name for name, each in layers if all(f"{name}.{own}" in cut for own, _ in each.named_parameters())), ""
    )


def is_unkept(span: Span) -> bool:
    """Whether a statement keeps what it computes in no name that its function reads."""
    code = code_at(span)
    if code is None:
        return False
    around = [code.node, *code.around(code.node)]
    statement = next((each for each in around if isinstance(each, ast.stmt)), None)
    function = next((each for each in around if isinstance(each, ast.FunctionDef)), None)
    if function is None:
        return False
    if isinstance(statement, ast.Expr):
        return code.node in (statement, statement.value)
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1 or not _is_all(code, statement):
        return False
    goal = statement.targets[0]
    names = goal.elts if isinstance(goal, ast.Tuple) else [goal]
    read = {each.id for each in ast.walk(function) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)}
    return all(isinstance(each, ast.Name) and each.id not in read for each in names)


def _is_all(code: Code, statement: ast.Assign) -> bool:
    return statement.value is code.node or code.node is statement


def _read_on(done: Run, entry: MarkedOp, owner: str) -> tuple[dict[Site, Callable[..., Any]], Any]:
    """What is projected in vain, taken from there on."""
    module = module_at(done.target, owner) if owner in dict(done.target.named_modules()) else None
    if not isinstance(module, nn.Linear) or module.in_features != module.out_features:
        return {}, None
    number = entry.operation.inputs[0].number
    maker = next((each for each in reversed(done.seen[: entry.at])
                  if any(made.number == number for made in each.operation.outputs)), None)  # fmt: skip
    if maker is None or len(maker.operation.outputs) != 1:
        return {}, None
    held, function = Held(owner), maker.function

    def right(*args: Any, **options: Any) -> Any:
        return held.module(function(*args, **options))

    return {site_of(maker.operation): right}, held.take


def unmade(done: Run, owner: str) -> Suspect | None:
    """The side of an attention that goes without a projection, where one is registered and never called; None: each has
    its own.
    """
    module = dict(done.target.named_modules(remove_duplicate=False)).get(owner)
    if not isinstance(module, nn.Linear) or not attentions(done):
        return None
    made = makings(done, attentions(done)[0])
    bare = [each for each in made.values() if each.projection is None and each.source is not None]
    if len(made) != len("qkv") or len(bare) != 1 or role_of(owner) not in ("", bare[0].name):
        return None
    first = bare[0].first
    held, function, place = Held(owner), first.function, _place(first)
    if place is None or first.operation.inputs[place].shape[-1] != module.in_features:
        return None

    def right(*args: Any, **options: Any) -> Any:
        return function(*args[:place], held.module(args[place]), *args[place + 1 :], **options)

    span = call_of(done, first)
    return Suspect("projection-unused", span, {site_of(first.operation): right}, said={"name": owner},
                   change=held.take, home=bound_to(span))  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Instead:
    """A stand-in for the call of a layer: another one is called."""

    held: Held

    def __call__(self, x: Tensor, *_: Any, **__: Any) -> Any:
        return self.held.module(x)


def called_twice(done: Run, owner: str) -> Suspect | None:
    """The second call of a layer that runs at two places, where its twin is registered and runs at none; None: no layer
    of the same sizes does.
    """
    modules = dict(done.target.named_modules(remove_duplicate=False))
    spare = modules.get(owner)
    if not isinstance(spare, nn.Linear):
        return None
    for name, each in modules.items():
        if each is spare or not isinstance(each, nn.Linear) or each.weight.shape != spare.weight.shape:
            continue
        calls = {call_of(done, entry): entry for entry in done.seen if any(t is each.weight for t in entry.tensors)}
        if len(calls) != len(("first", "second")):
            continue
        span, entry = list(calls.items())[-1]
        held = Held(owner)
        return Suspect("projection-unused", span, {site_of(entry.operation): _Instead(held)},
                       said={"name": owner, "_instead": name}, change=held.take)  # fmt: skip
    return None


def _place(entry: MarkedOp) -> int | None:
    """Which argument of an operation holds tokens."""
    held = [tensor for tensor, marks in zip(entry.tensors, entry.given, strict=True) if marks is not None]
    places = [at for at, each in enumerate(entry.args) if isinstance(each, Tensor) and any(each is t for t in held)]
    return places[0] if places else None


def last_of(done: Run) -> list[MarkedOp]:
    """What was computed of the arguments, but for what drops at the end, which drops what a projection gives."""
    found = [each for each in done.seen if any(marks is not None for marks in each.given)]
    return found[:-1] if len(found) > 1 and "dropout" in found[-1].last else found


def end_of(done: Run) -> Span | None:
    """Where the output was last computed."""
    found = last_of(done)
    if not found:
        return None
    last = found[-1].operation
    spans = [*last.chain, last.span]
    return next((span for span in spans if span.function == f"{type(done.target).__qualname__}.forward"), last.span)


def named_again(done: Run) -> Span | None:
    """Where what is projected nowhere is only given another name or returned, if it is."""
    end, is_last = end_of(done), bool(done.seen) and "dropout" not in done.seen[-1].last
    return alias_after(end, returns=True) if is_last and end is not None else None
