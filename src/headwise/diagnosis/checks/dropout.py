"""Dropout: whether dropout stands where it should, in training only."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from headwise.calls import Plan, init_role
from headwise.dataflow import AttentionOps, MarkedOp, Run, attentions, chain_of, token_sums
from headwise.diagnosis.checks.head_layout import sides
from headwise.diagnosis.checks.parameters import unregistered
from headwise.diagnosis.checks.unused_projections import is_unkept
from headwise.diagnosis.faults.fault import WARNING
from headwise.diagnosis.modules import modules_in
from headwise.diagnosis.patches.dropout import dropout_of_weights
from headwise.diagnosis.repair import Repair, Undropping
from headwise.diagnosis.suspects import Suspect
from headwise.recording import Site
from headwise.source import code_at, made_at, option_of

__all__ = ["drawn_suspects", "dropping_suspects", "has_dropout", "with_dropout"]

SHARE = 0.4
# what holds whatever the memory held before
UNWRITTEN = frozenset({"empty", "empty_like", "new_empty", "empty_strided"})
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
    for module in target.modules() if isinstance(target, nn.Module) else ():
        for name, value in vars(module).items():
            # a share that is handed to torch's functions
            if (init_role(name) == "dropout" or "drop" in name.lower()) and isinstance(value, float) and value == 0.0:
                setattr(module, name, SHARE)


def drawn_suspects(first: Run, again: Run) -> list[Suspect]:
    """What is drawn anew in each run, though it is in evaluation."""
    if first.output is None or again.output is None or _is_same(first.output, again.output):
        return []
    random = _random_operation(first, again)
    if random is None:
        return []
    if not _is_dropping(random):
        return _random_suspects(first, random)
    return _unreached(first) or [undropped(first, random)]


def _unreached(run: Run) -> list[Suspect]:
    """Modules that eval() does not reach, as their owner keeps them in a plain list: what they drop follows from it."""
    suspects = unregistered(run)
    name = str(suspects[0].values.get("name", "")) if suspects and suspects[0].repair.change is not None else ""
    owners = [module for module in run.target.modules() if name in vars(module)] if name else []
    kept_in = [module for owner in owners for module in modules_in(vars(owner)[name])]
    is_left = any(module.training != run.target.training for each in kept_in for module in each.modules())
    return [replace(suspects[0], kind="modules-unregistered")] if is_left else []


def _is_same(a: Tensor, b: Tensor) -> bool:
    """Whether two outputs are equal, NaN where NaN is."""
    return a.shape == b.shape and torch.equal(a.nan_to_num(), b.nan_to_num())


def dropping_modules(target: Any, _: dict[str, Any]) -> None:
    """Let every dropout of a module drop something."""
    for module in target.modules() if isinstance(target, nn.Module) else ():
        if isinstance(module, nn.Dropout) and module.p == 0.0:
            module.p = SHARE


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
    if first.failure is not None or again.failure is not None:
        return []
    stand_ins: dict[Any, Any]
    random = _random_operation(first, again)
    if random is not None and _is_dropping(random):
        return [undropped(first, random)]
    trained = rerun(plan=there, more_change=change, training=True)
    out = []
    for attention in attentions(trained) if trained.failure is None else ():
        softmax = attention.softmax
        for entry in attention.path:
            if "dropout" in entry.last and softmax is not None and entry.at < softmax.at and _dropped(entry):
                stand_ins = {entry.site: lambda *args, **_: args[0]}
                rewriting = partial(dropout_of_weights, softmax=softmax.span)
                out.append(Suspect("dropout-before-softmax", entry.span, Repair(stand_ins, rewriting=rewriting)))
    return out[:1] or _twice(trained) or _lost(trained)


def _twice(trained: Run) -> list[Suspect]:
    """Dropout of what dropout has just left in the same function: nothing but movements lies between the two. A layer
    that is handed what another has dropped has a rate of its own.
    """
    results = {tensor.number: entry for entry in trained.seen for tensor in entry.outputs}
    for entry in trained.seen:
        if not _is_dropout(entry) or not _dropped(entry):
            continue
        before = results.get(entry.inputs[0].number)
        while before is not None and before.is_movement and before.at < entry.at:
            entry_before = results.get(before.inputs[0].number)
            before = entry_before if entry_before is not before else None
        is_second = before is not None and before is not entry and before.span.function == entry.span.function
        if before is not None and is_second and _is_dropout(before) and _dropped(before):
            stand_ins = {entry.site: lambda *args, **_: args[0]}
            return [Suspect("dropout-twice", entry.span, Repair(stand_ins))]
    return []


def _lost(trained: Run) -> list[Suspect]:
    """Dropout of what goes on as it was: nobody reads what is left of it, and the code keeps it in no name."""
    taken = {tensor.number for entry in trained.seen for tensor in entry.inputs}
    for entry in trained.seen:
        if not _is_dropout(entry) or entry.operation.writes or not _dropped(entry):
            continue
        goes_on = any(tensor.number in taken for tensor in entry.outputs)
        if not goes_on and is_unkept(entry.span):
            return [Suspect("dropout-discarded", entry.span)]
    return []


def _is_dropout(entry: MarkedOp) -> bool:
    return "dropout" in entry.last and bool(entry.inputs) and bool(entry.outputs)


def _is_dropping(entry: MarkedOp) -> bool:
    """Whether what an operation draws is what it drops."""
    return any(each in entry.last for each in ("drop", "bernoulli", "scaled_dot_product_attention"))


def undropped(run: Run, entry: MarkedOp) -> Suspect:
    """That an operation drops in evaluation, said where its share or its rule was chosen.

    Before the first attention `training=True` may be meant so, as in the pre-net of Tacotron 2 (arXiv:1712.05884, 2.2).
    """
    span = entry.span
    home = next((origin for name in ("dropout_p", "training")
                 if (origin := made_at(span, entry.operation.chain, option_of(name))) is not None), None)  # fmt: skip
    code = code_at(span)
    node = None if code is None else code.node
    written = [] if node is None else [*option_of("training")(node), *getattr(node, "args", [])[2:3]]
    is_meant = any(isinstance(part, ast.Constant) and part.value is True for part in written) and _is_before(run, entry)
    severity = WARNING if is_meant else ""
    return Suspect("dropout-in-eval", span, Repair(_kept(entry)), severity=severity, home=home)


def _is_before(run: Run, entry: MarkedOp) -> bool:
    """Whether an operation comes before the projections of all attentions and weighted sums, of which there is one."""
    sums = token_sums(run)
    chains = [chain_of(run, side.entry, side.operand) for each in attentions(run) for side in sides(each)]
    chains += [chain_of(run, total.product, total.product.args[at]) for total in sums for at in total.operands]
    behind = [[op for op in chain if op.at > entry.at] for chain in chains if any(op is entry for op in chain)]
    is_projected = all(any(op.joint is not None for op in ops) for ops in behind)
    # tokens that a recurrent cell has read are not followed to the projections
    firsts = [(attention.path[0] if attention.path else attention.context).at for attention in attentions(run)]
    firsts += [total.product.at for total in sums]
    return bool(firsts) and is_projected and entry.at < min(firsts)


def _kept(entry: MarkedOp) -> dict[Site, Callable[..., Any]]:
    """What stands in for an operation that drops, and drops nothing."""
    if entry.last != "scaled_dot_product_attention":
        return {entry.site: lambda *args, **_: args[0]}
    return {entry.site: Undropping(entry.function)}


def _random_operation(first: Run, again: Run) -> MarkedOp | None:
    """The first operation that gives another result for the same inputs."""
    for a, b in zip(first.seen, again.seen, strict=False):
        if a.last in UNWRITTEN:
            continue
        for x, y in zip(a.outputs, b.outputs, strict=False):
            if (
                x.value is not None
                and y.value is not None
                and not torch.equal(x.value.nan_to_num(), y.value.nan_to_num())
            ):
                return a
    return None


def _dropped(entry: MarkedOp) -> bool:
    before, after = entry.inputs[0].value, entry.outputs[0].value
    return before is not None and after is not None and not torch.equal(before, after)


def _random_suspects(run: Run, entry: MarkedOp) -> list[Suspect]:
    """That an operation draws numbers which change the weights. What is drawn elsewhere may be meant so, as the first
    slots of slot attention.
    """
    if not any(_is_between(entry, attention) for attention in attentions(run)):
        return []
    function, name = entry.function, entry.last.strip("_")

    def right(*args: Any, **options: Any) -> Any:
        if name == "gumbel_softmax":
            return torch.softmax(args[0] if args else options["logits"], dim=options.get("dim", -1))
        output = function(*args, **options)
        return torch.zeros_like(output) if isinstance(output, Tensor) else output

    return [Suspect("random-in-eval", entry.span, Repair({entry.site: right}), values={"name": name})]


def _is_between(entry: MarkedOp, attention: AttentionOps) -> bool:
    first = attention.path[0] if attention.path else attention.context
    return first.at <= entry.at < attention.context.at
