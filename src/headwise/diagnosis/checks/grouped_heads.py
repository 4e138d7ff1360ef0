"""Grouped heads: where query heads share keys, whether each group of neighbours shares one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from headwise.calls import Plan, find, init_role, parameters
from headwise.dataflow import AttentionOps, MarkedOp, Run, attentions, chain_of
from headwise.diagnosis.checks.head_layout import Side, sides
from headwise.diagnosis.patches.movements import repeated_blockwise
from headwise.diagnosis.repair import Repair
from headwise.diagnosis.suspects import Suspect

__all__ = ["COPIES", "groups_suspects", "raising_groups"]

# work of the search for a call with fewer key heads
WORK = 17_500
COPIES = ("repeat", "tile", "expand", "cat", "repeat_interleave", "concat", "stack")


def groups_suspects(run: Run) -> list[Suspect]:
    """Key or value heads that are laid out as tiles where each should serve neighbouring query heads."""
    out = []
    for attention in attentions(run):
        by_name = {each.name: each for each in sides(attention)}
        if "q" not in by_name:
            continue
        queries = _heads(by_name["q"].f)
        for name in "kv":
            if name not in by_name:
                continue
            side = by_name[name]
            problems = queries if name == "k" else _weights_heads(attention)
            keys = _heads(side.f)
            if problems is None or len(problems) != len(keys):
                continue
            count, many = int(keys.max()) + 1, int(problems.max()) + 1
            if count >= many or count < 2 or many % count:
                continue
            if torch.equal(keys, problems % count) and not torch.equal(keys, problems // (many // count)):
                out.append(_suspect(run, side, many // count))
    return out


def raising_groups(plan: Plan) -> list[Suspect]:
    """Where a class that asks how many key heads it has raises with fewer of them than heads; a plan that gives it as
    many was found instead.
    """
    kind = plan.target
    named = {init_role(parameter.name): parameter for parameter in parameters(kind)} if isinstance(kind, type) else {}
    heads, keys = named.get("heads"), named.get("key_heads")
    if heads is None or keys is None or plan.init.get(keys.name) != "H" or plan.init.get(heads.name) != "H":
        return []
    numbers = [parameter.default for parameter in (heads, keys)]
    if not all(type(number) is int for number in numbers) or numbers[0] == numbers[1]:
        # it may be meant to have as many
        return []
    found = find(kind, namespace=plan.namespace, init={heads.name: "H", keys.name: "Hkv"}, work=WORK)
    failed = None if found.plans else next(iter(found.failures), None)
    if failed is None or failed.span is None or not isinstance(failed.error, RuntimeError) or not failed.plan.call:
        return []
    whole = {parameter.name: parameter.default for parameter in parameters(kind) if type(parameter.default) is int}
    if find(kind, namespace=plan.namespace, init=whole, work=WORK).plans:
        # another width goes with the heads that it has by default
        return []
    values = {"name": keys.name, "near": heads.name, "error": str(failed.error).splitlines()[0]}
    return [Suspect("groups-raise", failed.span, values=values, proved=True)]


def _heads(f: Tensor) -> Tensor:
    """The rank of each problem's head among those of its sample."""
    first = f.amin(dim=(1, 2))

    ranks: Tensor = torch.unique(first, return_inverse=True)[1]
    return ranks


def _weights_heads(attention: AttentionOps) -> Tensor | None:
    if attention.weight_tokens is None:
        return _heads(sides(attention)[0].f) if attention.fused else None
    heads = attention.weight_tokens[2][:, 0, 0]
    ranks: Tensor = torch.unique(heads, return_inverse=True)[1]
    return ranks


def _suspect(run: Run, side: Side, group: int) -> Suspect:
    copies = [op for op in chain_of(run, side.entry, side.operand) if op.last in COPIES]
    entry = copies[-1] if copies else side.entry
    axis = _grown(entry, group)
    stand_ins = {entry.site: _blocks(entry, group)} if copies else {}
    rewriting = None if axis is None else partial(repeated_blockwise, axis=axis)
    return Suspect("groups-tiled", entry.span, Repair(stand_ins, rewriting=rewriting))


def _grown(entry: MarkedOp, group: int) -> int | None:
    """The axis along which an operation makes so many of each; None: along none."""
    before, after = entry.inputs[0].shape, entry.outputs[0].shape
    return next((at for at, (a, b) in enumerate(zip(before, after, strict=False)) if b == a * group), None)


def _blocks(entry: MarkedOp, group: int) -> Callable[..., Any]:
    function, axis = entry.function, _grown(entry, group)
    is_as_deep = len(entry.inputs[0].shape) == len(entry.outputs[0].shape)

    def right(*args: Any, **options: Any) -> Any:
        if axis is None or not is_as_deep:
            return function(*args, **options)
        first = args[0] if isinstance(args[0], Tensor) else args[0][0]
        return first.repeat_interleave(group, dim=axis)

    return right
