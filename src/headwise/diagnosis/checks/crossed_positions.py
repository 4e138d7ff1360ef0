"""Crossed positions: whether the positions that are passed to an attention are added to its values and not its keys."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from headwise.calls import call_role
from headwise.dataflow import ADDITIONS, AttentionOps, MarkedOp, Run, attentions, is_layer, value_of
from headwise.diagnosis.checks.head_layout import sides
from headwise.diagnosis.suspects import Suspect
from headwise.source import Span

__all__ = ["crossed_positions"]


def crossed_positions(run: Run, rerun: Callable[..., Run]) -> list[Suspect]:
    """Positions that are passed as an argument and change the values of an attention, but not its keys (Carion et al.
    2020, arXiv:2005.12872, app. A.3: keys have positions, values have none).

    rerun: the same run with other arguments. Proved by it: the argument is changed, and keys and values are compared.
    """
    if not isinstance(run.target, nn.Module):
        return []
    # one of several tensors in one argument, as sines are, has a name that no argument has
    for name in (name for name in run.given if name in run.plan.call and call_role(name) == "encoding"):

        def change(_: Any, options: dict[str, Any], name: str = name) -> None:
            options[name] = 2 * options[name]

        second = rerun(more_change=change)
        for a, b in zip(attentions(run), attentions(second), strict=False):
            before, after = _keys_and_values(a), _keys_and_values(b)
            if before is None or after is None:
                continue
            is_same = [x.shape == y.shape and torch.equal(x, y) for x, y in zip(before, after, strict=True)]
            if is_same == [True, False] and (span := _added_at(run, run.given[name], a.context)) is not None:
                return [Suspect("position-on-values", span, values={"name": name}, proved=True)]
    return []


def _keys_and_values(attention: AttentionOps) -> tuple[Tensor, Tensor] | None:
    """The keys and the values that an attention takes; None: they are not known."""
    entry = attention.context
    if is_layer(entry):
        bound = inspect.signature(entry.function).bind(*entry.args, **entry.options).arguments
        return value_of(entry, bound["key"]), value_of(entry, bound["value"])
    by_name = {side.name: side.x for side in sides(attention)}
    return (by_name["k"], by_name["v"]) if {"k", "v"} <= by_name.keys() else None


def _added_at(run: Run, positions: Tensor, context: MarkedOp) -> Span | None:
    """Where positions are added last before an attention: in the call of a helper that adds them, that call."""
    sums = [op for op in run.seen if op.at < context.at and op.name in ADDITIONS and _takes(op, positions)]
    if not sums:
        return None
    last = sums[-1]
    return last.operation.chain[-1] if last.operation.chain else last.span


def _takes(entry: MarkedOp, positions: Tensor) -> bool:
    return any(
        tensor.value is not None and tensor.value.shape == positions.shape and torch.equal(tensor.value, positions)
        for tensor in entry.inputs
    )
