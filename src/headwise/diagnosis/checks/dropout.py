"""Dropout: whether dropout stands where it should, in training only."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from headwise.calls import Plan, init_role
from headwise.dataflow import MarkedOp, Run, attentions, is_movement
from headwise.diagnosis.checks.parameters import unregistered
from headwise.diagnosis.checks.randomness import random_suspects
from headwise.diagnosis.checks.unused_projections import is_unkept
from headwise.diagnosis.members import modules_in
from headwise.diagnosis.suspects import Suspect, Undropping
from headwise.recording import Site, site_of
from headwise.source import made_at, option_of

__all__ = ["drawn_suspects", "dropping_suspects", "has_dropout", "kept", "with_dropout"]

SHARE = 0.4
CONFIGURED = re.compile(r"(\b\w*drop\w*=)0\.0\b", re.IGNORECASE)


def with_dropout(plan: Plan) -> Plan:
    """A plan whose dropout drops something."""

    def shared(name: str, value: Any) -> Any:
        if isinstance(value, Mapping) and isinstance(value.get("_expr"), str):
            # a config that is written as a call
            return {**value, "_expr": CONFIGURED.sub(rf"\g<1>{SHARE}", value["_expr"])}
        return SHARE if isinstance(value, float) and value == 0.0 and "drop" in name.lower() else value

    return replace(plan, init={name: shared(name, value) for name, value in plan.init.items()})


def dropping(target: Any, _: dict[str, Any]) -> None:
    """Let every dropout of a module drop something, and every share that is kept for torch's functions."""
    dropping_modules(target, _)
    for each in target.modules() if isinstance(target, nn.Module) else ():
        for name, value in vars(each).items():
            # a share that is handed to torch's functions
            if (init_role(name) == "dropout" or "drop" in name.lower()) and isinstance(value, float) and value == 0.0:
                setattr(each, name, SHARE)


def drawn_suspects(first: Run, again: Run) -> list[Suspect]:
    """What is drawn anew in each run, though it is in evaluation."""
    if first.output is None or again.output is None or _is_same(first.output, again.output):
        return []
    random = _random_operation(first, again)
    if random is None:
        return []
    if not _is_dropping(random):
        return random_suspects(first, random)
    return _unreached(first) or [undropped(random)]


def _unreached(done: Run) -> list[Suspect]:
    """Modules that eval() does not reach, as their owner keeps them in a plain list: what they drop follows from it."""
    found = unregistered(done)
    name = str(found[0].said.get("name", "")) if found and found[0].change is not None else ""
    owners = [each for each in done.target.modules() if name in vars(each)] if name else []
    kept_in = [one for each in owners for one in modules_in(vars(each)[name])]
    is_left = any(one.training != done.target.training for each in kept_in for one in each.modules())
    return [replace(found[0], kind="modules-unregistered")] if is_left else []


def _is_same(a: Tensor, b: Tensor) -> bool:
    """Whether two outputs are equal, NaN where NaN is."""
    return a.shape == b.shape and torch.equal(a.nan_to_num(), b.nan_to_num())


def dropping_modules(target: Any, _: dict[str, Any]) -> None:
    """Let every dropout of a module drop something."""
    for each in target.modules() if isinstance(target, nn.Module) else ():
        if isinstance(each, nn.Dropout) and each.p == 0.0:
            each.p = SHARE


def has_dropout(plan: Plan, rerun: Callable[..., Run]) -> bool:
    """Whether a run in training mode, with every rate above 0, has an operation that drops."""
    there = with_dropout(plan)
    change = dropping if there.init == plan.init else dropping_modules
    trained = rerun(plan=there, more_change=change, training=True)
    return any("dropout" in entry.last or _rate(entry) > 0.0 for entry in trained.seen)


def _rate(entry: MarkedOp) -> float:
    """The dropout of torch's fused attention; 0 of any other operation."""
    if entry.last != "scaled_dot_product_attention":
        return 0.0
    # query, key, value, attn_mask, dropout_p
    return float(entry.options.get("dropout_p", entry.args[4] if len(entry.args) > 4 else 0.0))


def dropping_suspects(plan: Plan, rerun: Callable[..., Run]) -> list[Suspect]:
    """Dropout in eval, or before the softmax."""
    there = with_dropout(plan)
    # who was told to drop has chosen by it which way to go: what was kept of it stays as it is
    change = dropping if there.init == plan.init else dropping_modules
    first, again = (rerun(plan=there, more_change=change, luck=luck) for luck in (1, 2))
    if first.record.failure is not None or again.record.failure is not None:
        return []
    stand_ins: dict[Any, Any]
    random = _random_operation(first, again)
    if random is not None and _is_dropping(random):
        return [undropped(random)]
    trained = rerun(plan=there, more_change=change, training=True)
    out = []
    for attention in attentions(trained) if trained.record.failure is None else ():
        softmax = attention.softmax
        for entry in attention.path:
            if "dropout" in entry.last and softmax is not None and entry.at < softmax.at and _dropped(entry):
                stand_ins = {site_of(entry.operation): lambda *args, **_: args[0]}
                said = {"_softmax": softmax.operation.span}
                out.append(Suspect("dropout-before-softmax", entry.operation.span, stand_ins, said=said))
    return out[:1] or _twice(trained) or _lost(trained)


def _twice(trained: Run) -> list[Suspect]:
    """Dropout of what dropout has just left: nothing but movements lies between the two."""
    made = {each.number: entry for entry in trained.seen for each in entry.operation.outputs}
    for entry in trained.seen:
        if not _is_dropout(entry) or not _dropped(entry):
            continue
        before = made.get(entry.operation.inputs[0].number)
        while before is not None and is_movement(before.operation.function) and before.at < entry.at:
            entry_before = made.get(before.operation.inputs[0].number)
            before = entry_before if entry_before is not before else None
        if before is not None and before is not entry and _is_dropout(before) and _dropped(before):
            stand_ins = {site_of(entry.operation): lambda *args, **_: args[0]}
            return [Suspect("dropout-twice", entry.operation.span, stand_ins)]
    return []


def _lost(trained: Run) -> list[Suspect]:
    """Dropout of what goes on as it was: nobody reads what is left of it, and the code keeps it in no name."""
    taken = {each.number for entry in trained.seen for each in entry.operation.inputs}
    for entry in trained.seen:
        if not _is_dropout(entry) or entry.operation.writes or not _dropped(entry):
            continue
        goes_on = any(each.number in taken for each in entry.operation.outputs)
        if not goes_on and is_unkept(entry.operation.span):
            return [Suspect("dropout-discarded", entry.operation.span)]
    return []


def _is_dropout(entry: MarkedOp) -> bool:
    return "dropout" in entry.last and bool(entry.operation.inputs) and bool(entry.operation.outputs)


def _is_dropping(entry: MarkedOp) -> bool:
    """Whether what an operation draws is what it drops."""
    return any(each in entry.last for each in ("drop", "bernoulli", "scaled_dot_product_attention"))


def undropped(entry: MarkedOp) -> Suspect:
    """That an operation drops in evaluation, said where its share or its rule was chosen."""
    span = entry.operation.span
    home = next((found for name in ("dropout_p", "training")
                 if (found := made_at(span, entry.operation.chain, option_of(name))) is not None), None)  # fmt: skip
    return Suspect("dropout-in-eval", span, kept(entry), home=home)


def kept(entry: MarkedOp) -> dict[Site, Callable[..., Any]]:
    """What stands in for an operation that drops, and drops nothing."""
    if entry.last != "scaled_dot_product_attention":
        return {site_of(entry.operation): lambda *args, **_: args[0]}
    return {site_of(entry.operation): Undropping(entry.function)}


def _random_operation(first: Run, again: Run) -> MarkedOp | None:
    """The first operation that gives another result for the same inputs."""
    for a, b in zip(first.seen, again.seen, strict=False):
        for x, y in zip(a.operation.outputs, b.operation.outputs, strict=False):
            if (
                x.value is not None
                and y.value is not None
                and not torch.equal(x.value.nan_to_num(), y.value.nan_to_num())
            ):
                return a
    return None


def _dropped(entry: MarkedOp) -> bool:
    before, after = entry.operation.inputs[0].value, entry.operation.outputs[0].value
    return before is not None and after is not None and not torch.equal(before, after)
