"""Dropout drops the same pairs on any number of ranks, whatever the layout and the way."""

from functools import partial

import pytest
import torch
import torch.distributed as dist

import headwise as hw
from headwise.distributed import attention, spread
from headwise.ops import blockwise, reference
from headwise.ops.call import Call
from headwise.ops.dropout import drawn_seed
from headwise.ops.tile_dropout import TileDrops
from headwise.testing import assert_within_budget
from tests.distributed.calls import LAYOUTS, LENGTH, RULES, Case, joined, run
from tests.distributed.ranks import on_ranks

CHANCE, SEED = 0.3, 5
MASK = hw.causal() | hw.prefix(6)


def by_definition(kept, q, k, v, *, sink=None, weight=None):
    """The weights of one process, those dropped that `kept` says; by torch alone but for the weights."""
    call = Call(q, k, v, MASK, weight, sink=sink)
    weights = reference.weights(call, reference.scores(call)) * kept.to(torch.promote_types(q.dtype, torch.float32))
    return (weights @ v.repeat_interleave(call.groups, 1).to(weights.dtype)).to(q.dtype)


def on_rank(rank, case, layout, way):
    held = spread(LENGTH, dist.group.WORLD, layout=layout)
    mine = tuple(held.local(t, dim=2) for t in case.tensors())
    # the others' generators are elsewhere, as they are where ranks hold other data
    generator = torch.Generator().manual_seed(SEED + rank)
    given = partial(attention, spread=held, way=way, mask=MASK, dropout=CHANCE, generator=generator)
    return {**run(given, mine, RULES[case.rule](LENGTH, case.heads[0])), "tokens": held.tokens}


@pytest.mark.parametrize("way", ["gather", "heads", "queries", "ring"])
@pytest.mark.parametrize("rule", ["no rule", "sink", "additive"])
def test_the_same_pairs_are_dropped_on_any_number_of_ranks(way, rule):
    case = Case(rule=rule)
    tensors, rules = case.tensors(), RULES[rule](LENGTH, case.heads[0])
    everything = torch.arange(LENGTH)
    drops = TileDrops(
        CHANCE, int(drawn_seed(torch.Generator().manual_seed(SEED), torch.device("cpu"))), *[everything] * 2
    )
    kept = blockwise.kept(Call(*tensors[:3]), drops) * drops.raised
    assert 0.2 < (kept == 0).double().mean() < 0.4
    wide = {name: t.double() for name, t in rules.items()}
    exact = run(partial(by_definition, kept), tuple(t.double() for t in tensors), wide)
    plain = run(partial(by_definition, kept), tensors, rules)
    for ranks, layout in zip((1, 2, 3, 4), (*LAYOUTS, "zigzag"), strict=True):
        found = joined(on_ranks(ranks, on_rank, case, layout, way))
        for name, t in found.items():
            assert_within_budget(t, exact[name], plain[name])
