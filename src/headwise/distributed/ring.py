"""Ring: in each of W steps a rank attends to what it needs of one other rank's keys, and joins the results.

Liu, Zaharia and Abbeel 2023, "Ring Attention with Blockwise Transformers", arXiv:2310.01889. Here nothing is handed on:
step s brings what rank r needs of rank r - s straight from there, while the step before it computes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from headwise.distributed import gather
from headwise.distributed.dropout import drops_at
from headwise.distributed.exchange import Ends, Traffic, arrived, counting, started
from headwise.distributed.gather import RowPart, parts_of
from headwise.distributed.index import Index, Place, add, compact, size_of, take
from headwise.distributed.needed_keys import needs
from headwise.distributed.partial_attention import (
    INPUTS,
    Partial,
    add_to_rules,
    backward,
    forward,
    gradient_of_sink,
    in_order,
    no_gradients,
    nothing,
    rules_of,
    saved_call,
    whole_call,
)
from headwise.distributed.plan_cache import planned
from headwise.distributed.sequences import Sequences
from headwise.distributed.whole_call import WholeCall
from headwise.masks import Mask
from headwise.masks.tensor_versions import versions
from headwise.ops.call import Call


@dataclass(frozen=True, eq=False)
class RingStep:
    """One step: which of its own columns a rank sends to rank `to`, and which come from rank `origin`.

    parts: the calls of what comes. is_idle: no rank sends any.
    """

    to: int
    sends: Index
    origin: int
    comes: Index
    parts: tuple[RowPart, ...]
    is_idle: bool


@dataclass(frozen=True, eq=False)
class RingPlan:
    """The steps of a rank, of which the first takes its own keys. rows: the tokens of its queries."""

    steps: tuple[RingStep, ...]
    rows: Tensor
    ends: Ends


def run(call: WholeCall, spread: Sequences) -> Tensor:
    """The outputs of this rank's queries (B, Hq, Lq, Dv); of other ranks' keys two blocks are held at most."""
    tensors = (getattr(call, name) for name in INPUTS)
    out: Tensor = Ring.apply(plan(call, spread), rules_of(call), counting(), *tensors)  # type: ignore[no-untyped-call]
    return out


def sent(call: Call, spread: Sequences) -> tuple[int, int]:
    """The bytes that the busiest rank receives forward, and in how many steps."""
    return gather.sent(call, spread)[0], spread.queries.ranks - 1


def plan(call: Call, spread: Sequences) -> RingPlan:
    """What comes in which step, for a call."""
    sizes = call.sizes[:2]
    return planned(_planned, call.mask, spread, *sizes)


def _planned(mask: Mask | None, spread: Sequences, B: int, Hq: int) -> RingPlan:
    queries, source = spread.queries, spread.moved
    tokens, rank, ranks = source.layout.tokens, queries.rank, queries.ranks
    need = needs(mask, queries.layout, source.layout, batch=B, heads=Hq)
    steps = []
    for number in range(ranks):
        to, origin = (rank + number) % ranks, (rank - number) % ranks
        comes = need[rank][origin]
        parts = parts_of(mask, queries.tokens, tokens[origin][comes], (queries.length, source.length), (B, Hq))
        is_idle = number == 0 or not any(need[r][(r - number) % ranks].shape[0] for r in range(ranks))
        steps.append(RingStep(to, compact(need[to][rank]), origin, compact(comes), parts, is_idle))
    ends = Ends(rank, ranks, queries.group, f"ring of {source.length} tokens")
    return RingPlan(tuple(steps), queries.tokens, ends)


class Ring(torch.autograd.Function):
    """The steps, forward and backward; in backward keys come again, and their gradients go straight home."""

    @staticmethod
    def forward(
        ctx: Any, planned: RingPlan, rules: dict[str, Any], traffic: Traffic | None, *tensors: Tensor | None
    ) -> Tensor:
        ctx.plan, ctx.rules, ctx.traffic, ctx.versions = planned, rules, traffic, versions(rules["mask"])
        call = whole_call(tensors, rules)
        parts = [nothing(_rows(call, part, call.k, call.v, None)) for part in planned.steps[0].parts]
        for step, k, v in _keys(call, planned, traffic):
            parts = [
                so_far.joined(
                    forward(_block(call, planned, part, k, v), drops_at(call, planned.rows[part.rows], part.tokens))
                )
                for so_far, part in zip(parts, step.parts, strict=True)
            ]
        whole = Partial(torch.cat([p.out for p in parts], 2), torch.cat([p.lse for p in parts], 2))
        whole = whole.with_sink(call.sink)
        ctx.save_for_backward(*tensors, *whole)
        return whole.out.to(call.q.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        call, saved = saved_call(ctx, "ring")
        whole = Partial(*saved)
        with torch.autocast(call.q.device.type, enabled=False):
            sums = _gradients(call, ctx.plan, gradients[0], whole, ctx.traffic)
            if call.sink is not None:
                sums["sink"] = gradient_of_sink(call.sink, gradients[0], whole)
        return in_order(ctx, call, sums)


def _keys(call: Call, planned: RingPlan, traffic: Traffic | None) -> Iterator[tuple[RingStep, Tensor, Tensor]]:
    """Each step with the keys and values that it brings; the next ones are under way meanwhile."""
    coming = call.k.new_empty(0)
    for number, step in enumerate(planned.steps):
        if number == 0:
            k, v = (take(t, (slice(0, t.shape[1]), step.comes)) for t in (call.k, call.v))
        else:
            k, v = _opened(coming, planned, step, call, step.comes)
        if number + 1 < len(planned.steps):
            after = planned.steps[number + 1]
            sends = [take(t, (slice(0, t.shape[1]), after.sends)) for t in (call.k, call.v)]
            coming = _sent(sends, (after.to, after.origin), _numbers(call, after.comes), planned, after, traffic)
        yield step, k, v


def _gradients(
    call: WholeCall, planned: RingPlan, gradient: Tensor, whole: Partial, traffic: Traffic | None
) -> dict[str, Tensor]:
    """Those of all but the sink, in float32 at least, those of keys and values gathered from all ranks."""
    wide = whole.out.dtype
    total = no_gradients(call, wide)
    for step, k, v in _keys(call, planned, traffic):
        of_k, of_v = (t.new_zeros(t.shape, dtype=wide) for t in (k, v))
        for part in step.parts:
            rows = part.rows
            outputs = Partial(whole.out[:, :, rows], whole.lse[:, :, rows])
            drops = drops_at(call, planned.rows[rows], part.tokens)
            block = backward(_block(call, planned, part, k, v), gradient[:, :, rows], outputs, drops)
            total["q"][:, :, rows] += block["q"]
            at = (slice(0, k.shape[1]), part.columns)
            add(of_k, at, block["k"])
            add(of_v, at, block["v"])
            add_to_rules(total, block, call, planned.rows[rows], part.tokens)
        home = (slice(0, k.shape[1]), step.sends)
        if step is planned.steps[0]:
            came = [of_k, of_v]
        else:
            # the way back: what this rank has sent comes home from where it went
            back = _sent([of_k, of_v], (step.origin, step.to), _numbers(call, step.sends), planned, step, traffic)
            came = _opened(back, planned, step, call, step.sends)
        for name, part_of in zip(("k", "v"), came, strict=True):
            add(total[name], home, part_of)
    return total


def _sent(
    parts: list[Tensor], ends: tuple[int, int], count: int, planned: RingPlan, step: RingStep, traffic: Traffic | None
) -> Tensor:
    """What comes from the second of two ranks, `count` numbers, under way, while the first is sent these tensors."""
    flat = torch.cat([part.reshape(-1) for part in parts])
    if step.is_idle:
        return flat
    outs, ins = [0] * len(planned.steps), [0] * len(planned.steps)
    ins[ends[0]], outs[ends[1]] = flat.numel(), count
    return started(flat, outs, ins, planned.ends, traffic)


def _opened(coming: Tensor, planned: RingPlan, step: RingStep, call: Call, columns: Index) -> list[Tensor]:
    """The keys' and the values' part (B, Hk, columns, ...) of what has been sent."""
    flat = coming if step.is_idle else arrived(coming, planned.ends)
    shapes = [(*t.shape[:2], size_of(columns), t.shape[3]) for t in (call.k, call.v)]
    pieces = flat.split([math.prod(shape) for shape in shapes])
    return [piece.view(shape) for piece, shape in zip(pieces, shapes, strict=True)]


def _numbers(call: Call, columns: Index) -> int:
    B, Hk, _, D = call.k.shape
    return B * Hk * (D + call.v.shape[3]) * size_of(columns)


def _rows(call: WholeCall, part: RowPart, k: Tensor, v: Tensor, bias: Tensor | None) -> Call:
    return call.block((call.q[:, :, part.rows], k, v), part.mask, bias)


def _block(call: WholeCall, planned: RingPlan, part: RowPart, k: Tensor, v: Tensor) -> Call:
    """The call of some rows and those columns of a step that they need."""
    at: Place = (slice(0, k.shape[1]), part.columns)
    return _rows(call, part, take(k, at), take(v, at), call.exact_bias_at(planned.rows[part.rows], part.tokens))
