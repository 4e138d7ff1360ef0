"""Queries: each rank attends with all queries to the keys that it has, and the results join where the queries are.

For few queries and many keys: queries and their outputs move, and keys stay.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from headwise.distributed.dropout import drops_at
from headwise.distributed.exchange import Ends, Traffic, counting, moved
from headwise.distributed.gather import RowPart, parts_of
from headwise.distributed.index import Place, add, take
from headwise.distributed.partial_attention import (
    INPUTS,
    Partial,
    add_to_rules,
    backward,
    forward,
    gradient_of_sink,
    in_order,
    no_gradients,
    packed,
    rules_of,
    saved_call,
    unpacked,
    whole_call,
)
from headwise.distributed.plan_cache import planned
from headwise.distributed.sequences import Sequences
from headwise.distributed.whole_call import WholeCall
from headwise.masks import Mask
from headwise.masks.tensor_versions import versions
from headwise.ops.call import Call


@dataclass(frozen=True, eq=False)
class QueriesPlan:
    """Of each rank, the tokens of its queries, and the calls of these and this rank's keys."""

    rows: tuple[Tensor, ...]
    parts: tuple[tuple[RowPart, ...], ...]
    ends: Ends

    def sizes(self, call: Call, width: int) -> list[tuple[int, ...]]:
        """Those of each rank's rows, with so many features."""
        return [(*call.q.shape[:2], rows.shape[0], width) for rows in self.rows]


def run(call: WholeCall, spread: Sequences) -> Tensor:
    """The outputs of this rank's queries (B, Hq, Lq, Dv), joined of what each rank makes with its own keys."""
    tensors = (getattr(call, name) for name in INPUTS)
    out: Tensor = Passed.apply(plan(call, spread), rules_of(call), counting(), *tensors)  # type: ignore[no-untyped-call]
    return out


def sent(call: Call, spread: Sequences) -> tuple[int, int]:
    """The bytes that the busiest rank receives forward, and in how many steps."""
    (B, Hq, _, D), Dv, wide = call.q.shape, call.v.shape[3], max(4, call.q.element_size())
    queries = spread.queries
    bytes_per_token = (D * call.q.element_size(), (Dv + 2) * wide * (queries.ranks - 1))
    mine = [tokens.shape[0] for tokens in queries.layout.tokens]
    return max((queries.length - n) * bytes_per_token[0] + n * bytes_per_token[1] for n in mine) * B * Hq, 2


def plan(call: Call, spread: Sequences) -> QueriesPlan:
    """Which rows attend to this rank's keys, for a call."""
    sizes = call.sizes[:2]
    return planned(_planned, call.mask, spread, *sizes)


def _planned(mask: Mask | None, spread: Sequences, B: int, Hq: int) -> QueriesPlan:
    queries, source = spread.queries, spread.moved
    rows, lengths = queries.layout.tokens, (queries.length, source.length)
    parts = tuple(parts_of(mask, tokens, source.tokens, lengths, (B, Hq)) for tokens in rows)
    ends = Ends(queries.rank, queries.ranks, queries.group, f"queries of {queries.length} tokens", queries.ranks == 1)
    return QueriesPlan(rows, parts, ends)


class Passed(torch.autograd.Function):
    """The queries there and their results back; in backward the gradients and these, and the queries' gradients."""

    @staticmethod
    def forward(
        ctx: Any, planned: QueriesPlan, rules: dict[str, Any], traffic: Traffic | None, *tensors: Tensor | None
    ) -> Tensor:
        ctx.plan, ctx.rules, ctx.traffic, ctx.versions = planned, rules, traffic, versions(rules["mask"])
        call, ends = whole_call(tensors, rules), planned.ends
        (queries,) = moved(ends, [[call.q] * ends.ranks], [planned.sizes(call, call.q.shape[3])], traffic)
        results = [packed(_attended(call, planned, r, q)) for r, q in enumerate(queries)]
        size = (*call.q.shape[:3], call.v.shape[3] + 2)
        (came,) = moved(ends, [results], [[size] * ends.ranks], traffic)
        whole = reduce(Partial.joined, map(unpacked, came)).with_sink(call.sink)
        ctx.save_for_backward(*tensors, *whole, *queries)
        return whole.out.to(call.q.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        call, (out, lse, *queries) = saved_call(ctx, "queries")
        whole = Partial(out, lse)
        with torch.autocast(call.q.device.type, enabled=False):
            sums = _gradients(call, ctx.plan, queries, (gradients[0], whole), ctx.traffic)
            if call.sink is not None:
                sums["sink"] = gradient_of_sink(call.sink, gradients[0], whole)
        return in_order(ctx, call, sums)


def _gradients(
    call: WholeCall, planned: QueriesPlan, queries: list[Tensor], of_outputs: tuple[Tensor, Partial],
    traffic: Traffic | None,
) -> dict[str, Tensor]:  # fmt: skip
    """Those of all but the sink, in float32 at least. of_outputs: the gradient of the outputs, and the outputs."""
    gradient, whole = of_outputs
    ends, wide, Dv = planned.ends, whole.out.dtype, call.v.shape[3]
    sent = torch.cat([gradient.to(wide), packed(whole)], -1)
    (came,) = moved(ends, [[sent] * ends.ranks], [planned.sizes(call, 2 * Dv + 2)], traffic)
    total = no_gradients(call, wide)
    of_queries = []
    for r, (q, gradient_rows) in enumerate(zip(queries, came, strict=True)):
        of_q = q.new_zeros(q.shape, dtype=wide)
        for part in planned.parts[r]:
            rows = gradient_rows[:, :, part.rows]
            drops = drops_at(call, planned.rows[r][part.rows], part.tokens)
            block = backward(_block(call, planned, r, q, part), rows[..., :Dv], unpacked(rows[..., Dv:]), drops)
            of_q[:, :, part.rows] += block["q"]
            at: Place = (slice(0, call.k.shape[1]), part.columns)
            add(total["k"], at, block["k"])
            add(total["v"], at, block["v"])
            add_to_rules(total, block, call, planned.rows[r][part.rows], part.tokens)
        of_queries.append(of_q)
    (home,) = moved(ends, [of_queries], [[tuple(call.q.shape)] * ends.ranks], traffic)
    return {**total, "q": reduce(torch.add, home)}


def _attended(call: WholeCall, planned: QueriesPlan, rank: int, q: Tensor) -> Partial:
    """What the queries of a rank get of this rank's keys."""
    parts = [
        forward(_block(call, planned, rank, q, part), drops_at(call, planned.rows[rank][part.rows], part.tokens))
        for part in planned.parts[rank]
    ]
    return Partial(torch.cat([part.out for part in parts], 2), torch.cat([part.lse for part in parts], 2))


def _block(call: WholeCall, planned: QueriesPlan, rank: int, q: Tensor, part: RowPart) -> Call:
    at: Place = (slice(0, call.k.shape[1]), part.columns)
    bias = call.exact_bias_at(planned.rows[rank][part.rows], part.tokens)
    return call.block((q[:, :, part.rows], take(call.k, at), take(call.v, at)), part.mask, bias)
