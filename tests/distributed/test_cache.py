"""Decoding over a cache whose tokens are shared out over ranks: the numbers of one process, on every rank alike."""

import copy

import pytest
import torch
import torch.distributed as dist

import headwise as hw
from headwise.errors import CacheError, DistributedError, MaskError
from headwise.testing import assert_within_budget
from tests.distributed.ranks import on_ranks

B, L, E = 2, 11, 24
# the tokens of each step: a first part at once, one by one, and a few together
STEPS = (4, 1, 1, 3, 1, 1)
LAYERS = {
    "plain": {},
    "grouped and rotary": {"num_kv_heads": 2, "position": hw.Rotary()},
    "sink and softcap": {"score": hw.DotProduct(sink="learned", softcap=5.0)},
    "alibi": {"position": hw.Alibi()},
    "additive": {"num_kv_heads": 2, "score": hw.Additive(5)},
}
MASKS = {
    "causal": lambda seen: hw.causal(),
    "window": lambda seen: hw.window(before=3),
    # said at the first step, and kept
    "padding on the left": lambda seen: hw.causal() & hw.keys(KEEP[:, :seen]) if seen == STEPS[0] else hw.causal(),
}
KEEP = torch.arange(L) >= torch.tensor([[0], [3]])


def layer_of(name: str, dtype: torch.dtype = torch.float32) -> hw.MultiHeadAttention:
    torch.manual_seed(3)
    layer = hw.MultiHeadAttention(E, 6, **LAYERS[name]).eval()
    with torch.no_grad():
        for each in layer.parameters():
            each.add_(torch.randn(each.shape) * 0.1)
    return layer.to(dtype)


def tokens(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(B, L, E, generator=torch.Generator().manual_seed(1)).to(dtype)


def decoded(layer, held, x, mask) -> torch.Tensor:
    """The outputs of all tokens (B, L, E), step by step."""
    found, seen = [], 0
    with torch.no_grad():
        for step in STEPS:
            seen += step
            found.append(layer(x[:, seen - step : seen], mask=MASKS[mask](seen), cache=held))
    return torch.cat(found, 1)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_every_rank_gets_the_numbers_of_one_process(ranks, name, mask):
    shared = layer_of(name)

    def task(rank):
        layer = copy.deepcopy(shared)
        held = hw.distributed.cache(layer, dist.group.WORLD)
        return decoded(layer, held, tokens(), mask), repr(held)

    outs = on_ranks(ranks, task)
    exact = layer_of(name, torch.float64)
    exact = decoded(exact, exact.cache(), tokens(torch.float64), mask)
    plain = layer_of(name)
    plain = decoded(plain, plain.cache(), tokens(), mask)
    for rank, (out, told) in enumerate(outs):
        assert torch.equal(out, outs[0][0])
        assert_within_budget(out, exact, plain)
        assert told == f"SpreadCache(rank {rank} of {ranks}, seen={L}, held={len(range(rank, L, ranks))})"


def test_a_rank_holds_its_share_of_the_tokens_and_no_more():
    shared = layer_of("plain")

    def task(rank):
        layer = copy.deepcopy(shared)
        held = hw.distributed.cache(layer, dist.group.WORLD)
        decoded(layer, held, tokens(), "causal")
        return held._store.rows["k"].shape[2]

    # buffers double from 16 slots on
    assert on_ranks(3, task) == [16, 16, 16]


def test_tokens_taken_back_samples_picked_and_copies_go_on_alike():
    x = tokens()

    def run(layer, held):
        with torch.no_grad():
            layer(x[:, :7], mask=hw.causal(), cache=held)
            held.crop(5)
            held.reorder(torch.tensor([1, 1, 0]))
            beams = x[[1, 1, 0]]
            other = copy.deepcopy(held)
            first = layer(beams[:, 5:8], mask=hw.causal(), cache=held)
            again = layer(beams[:, 5:8], mask=hw.causal(), cache=other)
            held.reset()
            return first, again, layer(x[:, :2], mask=hw.causal(), cache=held)

    shared = layer_of("grouped and rotary")

    def task(rank):
        layer = copy.deepcopy(shared)
        return run(layer, hw.distributed.cache(layer, dist.group.WORLD))

    layer = layer_of("grouped and rotary")
    wanted = run(layer, layer.cache())
    for found in on_ranks(3, task):
        assert torch.equal(found[0], found[1])
        for got, want in zip(found, wanted, strict=True):
            torch.testing.assert_close(got, want, atol=2e-6, rtol=0)


@pytest.mark.parametrize("name", ["grouped and rotary", "alibi"])
def test_positions_and_a_bias_of_all_tokens_are_cut_to_those_held(name):
    x, at = tokens(), torch.arange(L)[None] * 2 + torch.tensor([[1], [0]])
    bias = torch.randn(6, L, L, generator=torch.Generator().manual_seed(2))

    def run(layer, held):
        with torch.no_grad():
            parts = [
                layer(
                    x[:, s],
                    mask=hw.window(before=6),
                    cache=held,
                    positions=at[:, s],
                    attn_bias=bias[None, :, s, : s.stop],
                )
                for s in (slice(0, 6), slice(6, 7), slice(7, 11))
            ]
        return torch.cat(parts, 1)

    shared = layer_of(name)

    def task(rank):
        layer = copy.deepcopy(shared)
        return run(layer, hw.distributed.cache(layer, dist.group.WORLD))

    layer = layer_of(name)
    wanted = run(layer, layer.cache())
    for found in on_ranks(3, task):
        torch.testing.assert_close(found, wanted, atol=2e-6, rtol=0)


def test_refusals_name_what_came():
    layer = hw.MultiHeadAttention(8, 2, dropout=0.25)
    held = hw.distributed.cache(layer)
    with torch.no_grad(), pytest.raises(CacheError, match=r"dropout=0\.25: call layer\.eval\(\)"):
        layer(torch.zeros(1, 1, 8), cache=held)
    # nothing was appended
    assert held.seen == 0

    shared = layer_of("plain")

    def task(rank):
        layer = copy.deepcopy(shared)
        held = hw.distributed.cache(layer, dist.group.WORLD)
        with torch.no_grad():
            layer(tokens()[:, : 2 + rank // 2], mask=hw.causal(), cache=held)

    said = r"agree on the number of new tokens, but rank 0 has .*=2 and rank 2 has .*=3"
    with pytest.raises(DistributedError, match=said):
        on_ranks(3, task)


def test_a_watch_says_that_a_step_has_no_map():
    layer = layer_of("plain")
    with torch.no_grad(), hw.watch(layer) as seen:
        layer(tokens()[:, :3], mask=hw.causal(), cache=hw.distributed.cache(layer))
    assert "its keys are distributed over ranks" in str(seen.unseen[""])


def test_a_step_that_one_rank_refuses_is_told_to_the_others_at_once():
    shared = layer_of("plain")

    def task(rank):
        layer = copy.deepcopy(shared)
        held = hw.distributed.cache(layer, dist.group.WORLD)
        mask = hw.keys(torch.ones(1, 7 if rank == 1 else 3, dtype=torch.bool))
        said = (MaskError, "Lk=3.*7") if rank == 1 else (DistributedError, "rank 1 refused its own")
        with torch.no_grad(), pytest.raises(said[0], match=said[1]):
            layer(tokens()[:, :3], mask=mask, cache=held)
        return held.seen

    assert on_ranks(2, task) == [0, 0]

    def training(rank):
        layer = copy.deepcopy(shared)
        layer.dropout = 0.25
        layer.train(rank == 1)
        held = hw.distributed.cache(layer, dist.group.WORLD)
        said = (CacheError, r"dropout=0\.25") if rank == 1 else (DistributedError, "rank 1 refused its own")
        with torch.no_grad(), pytest.raises(said[0], match=said[1]):
            layer(tokens()[:, :3], mask=hw.causal(), cache=held)
        return held.seen

    assert on_ranks(2, training) == [0, 0]


def test_ranks_that_have_seen_other_tokens_are_told_so():
    shared = layer_of("plain")

    def task(rank):
        layer = copy.deepcopy(shared)
        held = hw.distributed.cache(layer, dist.group.WORLD)
        with torch.no_grad():
            for t in range(4):
                layer(tokens()[:, t : t + 1], mask=hw.causal(), cache=held)
            held.crop(2 if rank == 1 else 4)
            with pytest.raises(DistributedError, match="rank 0 has seen 5 and rank 1 3"):
                layer(tokens()[:, 4:5], mask=hw.causal(), cache=held)

    on_ranks(2, task)


def test_large_scores_are_joined_as_exactly_as_small_ones():
    shared = layer_of("plain")
    with torch.no_grad():
        # scores that are large, all the same, and without rounding errors
        for each in (shared.q_proj, shared.k_proj):
            each.weight.zero_()
            each.bias.fill_(40.0)
    exact, x = copy.deepcopy(shared).double(), tokens()

    def task(rank):
        layer = copy.deepcopy(shared)
        return decoded(layer, hw.distributed.cache(layer, dist.group.WORLD), x, "causal")

    wanted = decoded(exact, exact.cache(), x.double(), "causal")
    plain = decoded(shared, shared.cache(), x, "causal")
    for out in on_ranks(3, task):
        assert_within_budget(out, wanted, plain)
