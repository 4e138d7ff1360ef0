"""Tile drops: every split of a map drops the same pairs, as often as the chance says."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import headwise as hw
from headwise.masks import picked
from headwise.ops import blockwise
from headwise.ops.call import Call
from headwise.ops.tile_dropout import TileDrops, mixed
from tests.sizes import SIZES

B, HQ, HK = SIZES["B"], SIZES["Hq"], SIZES["Hk"]
LQ, LK, D = 260, 1037, 4


def call_of(lq: int, lk: int, chance: float, mask: hw.Mask | None = None, *, b: int = B, hq: int = HQ, hk: int = HK):
    g = torch.Generator().manual_seed(lq + lk)
    sizes = ((b, hq, lq, D), (b, hk, lk, D), (b, hk, lk, D))
    return Call(*(torch.randn(size, generator=g) for size in sizes), mask=mask, dropout=chance)


def whole(chance: float, seed: int = 7) -> torch.Tensor:
    return blockwise.kept(call_of(LQ, LK, chance), TileDrops(chance, seed, torch.arange(LQ), torch.arange(LK)))


@settings(max_examples=20, deadline=None)
@given(st.data(), st.sampled_from([0.3, 0.001]))
def test_any_rows_and_columns_drop_what_the_whole_map_drops(data, chance):
    size = st.integers(1, 40)
    g = torch.Generator().manual_seed(data.draw(st.integers(0, 1 << 16)))
    rows, columns = (torch.randperm(n, generator=g)[: data.draw(size)] for n in (LQ, LK))
    if data.draw(st.booleans()):
        rows, columns = rows.sort().values, columns.sort().values
    found = blockwise.kept(call_of(len(rows), len(columns), chance), TileDrops(chance, 7, rows, columns))
    assert torch.equal(found, whole(chance)[:, :, rows][..., columns])


@pytest.mark.parametrize("start", [0, 100, 128])
def test_runs_samples_and_heads_drop_what_the_whole_map_drops(start):
    rows, columns = torch.arange(start, LQ), torch.arange(start, start + 700)
    call = call_of(len(rows), len(columns), 0.3, b=1, hq=2, hk=1)
    drops = TileDrops(0.3, 7, rows, columns, first_sample=1, first_head=4)
    found = blockwise.kept(call, drops)
    assert torch.equal(found, whole(0.3)[1:2, 4:6, rows][..., columns])


@pytest.mark.parametrize("chance", [0.1, 0.5, 0.002])
def test_weights_are_dropped_as_often_as_the_chance_says(chance):
    found = whole(chance)
    spread = (chance * (1 - chance) / found.numel()) ** 0.5
    assert abs(float(1 - found.mean(dtype=torch.float64)) - chance) < 5 * spread
    # samples, heads and tiles draw numbers of their own
    flat = found.flatten(0, 1)[:, :128, :512].flatten(1)
    assert len(flat.unique(dim=0)) == B * HQ
    assert not torch.equal(found[0, 0, :128, :512], found[0, 0, 128:256, :512])
    assert not torch.equal(found, whole(chance, seed=8))


def test_nothing_is_kept_where_all_is_dropped():
    assert not whole(1.0).any()


def test_outputs_and_gradients_of_parts_are_those_of_the_whole():
    chance, mask = 0.3, hw.causal()
    call = call_of(LQ, LQ, chance, mask)
    leaves = [t.requires_grad_() for t in (call.q, call.k, call.v)]
    everything = torch.arange(LQ)
    gradient = torch.randn(B, HQ, LQ, D, generator=torch.Generator().manual_seed(3))
    out = blockwise.outputs(call, TileDrops(chance, 5, everything, everything))
    wanted = torch.autograd.grad(out, leaves, gradient)
    found = [torch.zeros_like(t) for t in leaves]
    for rows in (everything[:97], everything[97:]):
        mine = picked(mask, rows, everything, sizes=(LQ, LQ))
        part = Call(call.q[:, :, rows], call.k, call.v, mask=mine, dropout=chance)
        here = blockwise.outputs(part, TileDrops(chance, 5, rows, everything))
        torch.testing.assert_close(here, out[:, :, rows])
        for total, each in zip(found, torch.autograd.grad(here, leaves, gradient[:, :, rows]), strict=True):
            total += each
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b)


def test_the_drops_of_a_seed_stay_what_they_are():
    # a checkpoint that is resumed by another version must drop the same
    assert mixed(7, 1, 3, 0, 2) == 1722735105143658295
    assert whole(0.3)[0, 0, 0, :24].long().tolist() == [int(bit) for bit in "110110111101101011110101"]
