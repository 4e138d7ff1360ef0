"""Spread: its parts make the whole, its layout is the cheapest, and what does not fit is refused."""

import gc
import weakref

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import headwise as hw
from benchmarks.shares import masks, tiles
from headwise.distributed import LayerSize, Layout, Machine, spread
from headwise.distributed.costs import MACHINES, cheapest, compare, work_of
from headwise.distributed.needed_keys import needs
from headwise.errors import ArgumentError, BackendError, ShapeError
from tests.distributed.ranks import on_ranks

LENGTH = 8192
CPU = torch.device("cpu")


MASKS = masks(LENGTH)


@pytest.mark.parametrize("layout", ["contiguous", "zigzag", "striped", "balanced", "auto"])
@pytest.mark.parametrize(("ranks", "length"), [(1, 5), (2, 9), (4, 13), (3, 2), (7, 40), (2, 0)])
def test_the_parts_of_all_ranks_make_the_whole_and_so_do_their_gradients(layout, ranks, length):
    whole = torch.randn(3, length, 2, dtype=torch.float64)
    gradient = torch.randn_like(whole)

    def task(rank):
        here = spread(length, mask=hw.causal(), layout=layout)
        part = here.local(whole).requires_grad_()
        joined = here.whole(part)
        joined.backward(gradient)
        assert torch.equal(here.positions, here.tokens)
        assert (here.rank, here.ranks, here.length) == (rank, ranks, length)
        return joined.detach(), part.grad, here.tokens, here.local(gradient)

    for joined, found, tokens, wanted in on_ranks(ranks, task):
        assert torch.equal(joined, whole)
        assert torch.equal(found, wanted)
        assert torch.equal(wanted, gradient[:, tokens])


def test_along_another_axis():
    whole = torch.arange(24.0).view(2, 3, 4)

    def task(rank):
        here = spread(4, layout="zigzag")
        return torch.equal(here.whole(here.local(whole, dim=-1), dim=-1), whole)

    assert on_ranks(2, task) == [True, True]


def test_one_process_is_one_rank():
    here = spread(6)
    t = torch.randn(2, 6, 3)
    assert (here.rank, here.ranks, here.group) == (0, 1, None)
    assert torch.equal(here.whole(here.local(t)), t)


def test_inside_of_with_layers_are_told():
    from headwise.ops.active_spread import active_spread

    outer, inner = spread(6), spread(8)
    with outer:
        with inner:
            assert active_spread() is inner
        assert active_spread() is outer
    assert active_spread() is None


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("ranks", [2, 3, 7, 8, 16])
def test_auto_shares_out_work_evenly_and_sends_little(name, ranks):
    mask = MASKS[name]
    found = compare(mask, LENGTH, ranks, machine=MACHINES["cpu"], layer=LayerSize(), device=CPU)
    taken = cheapest(found)
    assert taken.imbalance <= 1.05
    exact = needs(mask, taken.layout).received.sum(1)
    # estimated by tiles, of which each run of each rank may touch two too many
    runs = max(taken.layout.listed(rank, LENGTH).count(" ") + 1 for rank in range(ranks))
    assert (exact <= taken.received).all()
    assert (taken.received <= exact + 4 * runs * 128).all()
    if "window" in name:
        assert exact.max() <= LENGTH / 16 + LENGTH / 64


def test_a_window_sends_a_twelfth_of_what_a_ring_does_at_most():
    here = on_ranks(8, lambda rank: spread(LENGTH, mask=MASKS["window"]))[0]
    assert here.layout.name == "contiguous"
    assert 12 * int(here.needs(here.mask).received.sum(1).max()) <= LENGTH * 7 / 8


def test_a_function_is_asked_for_the_layout():
    def later(_b, _h, i, j):
        return j <= i

    work, _ = work_of(hw.rule(later), 1000, CPU)
    # asked of the middle row of each tile of 128
    assert work[[0, 127, 999]].tolist() == [128.0, 128.0, 1000.0]
    assert on_ranks(2, lambda rank: spread(1000, mask=hw.rule(later)).layout.name) == ["zigzag", "zigzag"]


def test_a_slow_network_keeps_neighbours_together():
    slow = Machine(flops=1e18, bandwidth=1e6, latency=1e-3)
    assert (
        on_ranks(4, lambda rank: spread(LENGTH, mask=MASKS["documents"], machine=slow).layout.name)[0] == "contiguous"
    )


def test_it_says_who_holds_what_and_why():
    said = on_ranks(2, lambda rank: str(spread(1024, mask=hw.causal())))[1]
    first, header, *rows = said.splitlines()
    assert first == "1024 tokens over 2 ranks, zigzag: slowest / mean work 1.00, most received 512 tokens"
    assert header.split() == ["rank", "tokens", "work", "receives", "bytes", "holds"]
    assert rows[0].split() == ["0", "512", "1.00", "512", "2.1", "MB", "0-255", "768-1023"]
    assert rows[1].split() == ["1", "(this)", "512", "1.00", "256", "1.05", "MB", "256-767"]
    assert [row.split()[:3] for row in rows[4:6]] == [["contiguous", "1", "1.44"], ["zigzag", "2", "1.00"]]
    assert rows[5].endswith("taken")


def test_a_layout_of_ones_own_is_taken():
    own = Layout("own", (torch.tensor([0, 3]), torch.tensor([1, 2, 4])))
    assert on_ranks(2, lambda rank: spread(5, layout=own).tokens.tolist()) == [[0, 3], [1, 2, 4]]
    with pytest.raises(ArgumentError, match=r"length=5 tokens on 1 ranks, but Layout\(own: .*\) holds 5 on 2"):
        spread(5, layout=own)


def test_a_whole_that_each_rank_uses_for_a_part_of_the_loss_has_the_sum_of_gradients():
    length, weight = 7, torch.randn(3, 7, 2, dtype=torch.float64)
    whole = torch.randn(3, length, 2, dtype=torch.float64)

    def task(rank):
        here = spread(length, layout="striped")
        part = here.local(whole).requires_grad_()
        # a loss of this rank's tokens, each with all others
        (here.local(weight)[:, :, None] * here.whole(part, loss="parts")[:, None]).square().sum().backward()
        return here.tokens, part.grad

    alone = whole.clone().requires_grad_()
    (weight[:, :, None] * alone[:, None]).square().sum().backward()
    for tokens, gradient in on_ranks(3, task):
        torch.testing.assert_close(gradient, alone.grad[:, tokens])


def test_what_does_not_fit_is_refused():
    here = spread(6)
    with pytest.raises(ArgumentError, match=r"loss must be \"same\" or \"parts\", but 'all' came"):
        here.whole(torch.zeros(2, 6), loss="all")
    with pytest.raises(ShapeError, match=r"the whole sequence, length=6, along dim=1, but came as \(2, 5\)"):
        here.local(torch.zeros(2, 5))
    with pytest.raises(ShapeError, match=r"this rank's 6 tokens along dim=0, but came as \(2, 6\)"):
        here.whole(torch.zeros(2, 6), dim=0)
    with pytest.raises(ArgumentError, match=r'layout must be "auto", "balanced", "contiguous".*; got \'zigzig\''):
        spread(6, layout="zigzig")
    with pytest.raises(ArgumentError, match="length must be 0 or more; got length=-1"):
        spread(-1)


def test_a_mesh_of_two_dimensions_is_refused():
    def task(rank):
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "cp"))
        with pytest.raises(ArgumentError, match=r"\('dp', 'cp'\) has 2: give one"):
            spread(6, mesh)
        return spread(6, mesh["cp"]).rank

    assert on_ranks(4, task) == [0, 1, 0, 1]


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("name", MASKS)
def test_runs_of_all_ranks_compute_the_tiles_of_the_whole_map_and_no_more(name, ranks):
    # long enough that the edges of tiles weigh little
    length = 4 * LENGTH
    mask = masks(length)[name]
    layout = on_ranks(ranks, lambda rank: spread(length, mask=mask).layout)[0]
    assert 0 < tiles(mask, layout) <= 1.02


def test_a_second_derivative_through_a_whole_of_one_loss_is_refused():
    x = torch.randn(2, 5, 3)

    def task(rank):
        here = spread(5, dist.group.WORLD)
        part = here.local(x).requires_grad_()
        with pytest.raises(BackendError, match=r'whole\(loss="same"\) gives one derivative'):
            torch.autograd.grad((here.whole(part) ** 3).sum(), part, create_graph=True)
        (first,) = torch.autograd.grad((here.whole(part, loss="parts") ** 3).sum() / 2, part, create_graph=True)
        return torch.autograd.grad(first.sum(), part)[0].detach(), here.tokens

    for second, tokens in on_ranks(2, task):
        torch.testing.assert_close(second, 6 * x[:, tokens])


def test_a_spread_goes_when_nothing_holds_it_and_has_no_keys_to_move_where_all_hold_them() -> None:
    held = spread(6)
    pair = held.with_keys(None)
    with pytest.raises(ArgumentError, match="every rank holds the keys whole, so that none need move"):
        _ = pair.moved
    assert held.moved is held
    del pair
    gone = weakref.ref(held)
    gc.disable()
    try:
        del held
        assert gone() is None
    finally:
        gc.enable()
