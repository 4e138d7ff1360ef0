"""The public functions of a spread sequence: what they refuse, report and move, and what NaN in padding may touch."""

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import headwise as hw
from headwise.distributed import attention, spread, ways
from headwise.distributed.exchange import counted
from headwise.errors import ArgumentError, BackendError, ShapeError
from headwise.testing import exact_attention
from tests.distributed.calls import LAYOUTS, LENGTH, Case, joined, run
from tests.distributed.ranks import on_ranks

WAYS = ("gather", "heads", "queries", "ring")


def parts(rank, mask, tensors, layout, way, **rules):
    """The outputs and gradients of one rank, for tensors of the whole sequence."""
    held = spread(tensors[0].shape[2], dist.group.WORLD, mask=mask, layout=layout)
    mine = tuple(held.local(t, dim=2) for t in tensors)
    found = run(lambda q, k, v, **more: attention(q, k, v, spread=held, way=way, mask=mask, **more), mine, rules)
    return {**found, "tokens": held.tokens}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("rule", ["no rule", "sink"])
def test_padding_on_any_rank_may_hold_nan(way, rule):
    keep = torch.ones(2, LENGTH, dtype=torch.bool)
    keep[0, 20:], keep[1, :4] = False, False
    mask, case = hw.causal() & hw.keys(keep), Case(rule=rule)
    q, k, v, go = case.tensors()
    rules = {name: value for name, value in case.rules().items() if name != "mask"}
    pad = ~keep[:, None, :, None]
    poisoned = (q, k.masked_fill(pad, torch.nan), v.masked_fill(pad, torch.nan), go)
    for layout in LAYOUTS:
        clean, found = (
            joined(on_ranks(3, lambda rank, t=t, layout=layout: parts(rank, mask, t, layout, way, **rules)))
            for t in ((q, k.masked_fill(pad, 0.0), v.masked_fill(pad, 0.0), go), poisoned)
        )
        assert all(torch.equal(found[name], clean[name]) for name in clean), (layout, way)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_is_needed_moves_and_nothing_else(dtype):
    mask, case = hw.causal() & hw.window(before=5), Case(dtype=dtype)
    Hk, (q, k, v, go) = case.heads[1], case.tensors()

    def task(rank):
        held = spread(LENGTH, dist.group.WORLD, layout="contiguous")
        mine = [held.local(t, dim=2).requires_grad_() for t in (q, k, v)]
        with counted() as forward:
            attention(*mine, spread=held, way="gather", mask=mask)
        with counted() as both:
            attention(*mine, spread=held, way="gather", mask=mask).backward(held.local(go, dim=2))
        return forward.bytes, both.bytes - forward.bytes

    sent = on_ranks(4, task)
    each = 2 * Hk * (k.shape[3] + v.shape[3])
    # ranks 1 to 3 need the 5 tokens before their own; gradients go home in float32
    assert sum(there for there, _ in sent) == 3 * 5 * each * dtype.itemsize
    assert sum(back for _, back in sent) == 3 * 5 * each * 4


def test_nothing_moves_where_ranks_hold_whole_documents():
    mask = hw.documents(torch.arange(12)[None] // 4)

    def task(rank):
        with counted() as traffic:
            parts(rank, mask, [torch.ones(1, 2, 12, 4)] * 4, "contiguous", "gather")
        return traffic.bytes

    assert on_ranks(3, task) == [0, 0, 0]


# of contiguous tokens, some ranks send and receive nothing for others
@pytest.mark.parametrize("layout", ["zigzag", "contiguous"])
@pytest.mark.parametrize("way", ["gather", "heads"])
def test_a_second_derivative_is_that_of_one_process(way, layout):
    q, k, v, go = (t.double() for t in Case().tensors())

    def twice(attend, tensors, gradient):
        first = torch.autograd.grad(attend(*tensors), tensors, gradient, create_graph=True)
        return torch.autograd.grad(sum((g * g).sum() for g in first), tensors)

    def task(rank):
        held = spread(LENGTH, dist.group.WORLD, layout=layout)
        mine = [held.local(t, dim=2).requires_grad_() for t in (q, k, v)]
        found = twice(lambda *t: attention(*t, spread=held, way=way, mask=hw.causal()), mine, held.local(go, dim=2))
        return {"out": found[0], **dict(zip("qkv", found, strict=True)), "tokens": held.tokens}

    exact = twice(lambda *t: exact_attention(*t, mask=hw.causal()), [t.requires_grad_() for t in (q, k, v)], go)
    found = joined(on_ranks(3, task))
    for name, wanted in zip("qkv", exact, strict=True):
        assert (found[name] - wanted).abs().max() <= 1e3 * torch.finfo(torch.float64).eps * wanted.abs().max()


@pytest.mark.parametrize("way", ["ring", "queries"])
def test_a_second_derivative_that_is_not_there_is_refused(way):
    def task(rank):
        held = spread(LENGTH, dist.group.WORLD, layout="zigzag")
        q = torch.ones(1, 4, len(held.tokens), 8, requires_grad=True)
        out = attention(q, q, q, spread=held, way=way)
        with pytest.raises(BackendError, match=f'way="{way}" gives one derivative, .* use way="gather"'):
            torch.autograd.grad(out.sum(), q, create_graph=True)

    on_ranks(2, task)


class TestRefusals:
    held = spread(LENGTH, layout="contiguous")

    def test_tokens_of_another_rank_are_counted(self):
        q = torch.ones(1, 2, 7, 4)
        with pytest.raises(ShapeError, match="q must hold the 29 tokens of rank 0, of 29 on 1 ranks, but holds 7"):
            attention(q, q, q, spread=self.held)

    def test_a_mask_is_that_of_the_whole_sequence(self):
        def task(rank):
            held = spread(LENGTH, dist.group.WORLD, layout="contiguous")
            q = torch.ones(1, 2, len(held.tokens), 4)
            with pytest.raises(ValueError, match=r"Lq=29.*\(15, 15\)|Lq=29.*\(14, 14\)"):
                attention(q, q, q, spread=held, mask=torch.ones(len(held.tokens), len(held.tokens), dtype=torch.bool))

        on_ranks(2, task)

    def test_an_unknown_way_lists_the_known(self):
        q = torch.ones(1, 2, LENGTH, 4)
        with pytest.raises(
            ArgumentError, match='way must be "auto", "gather", "heads", "queries", "ring"; got \'rong\''
        ):
            attention(q, q, q, spread=self.held, way="rong")

    def test_a_transform_is_refused(self):
        q = torch.ones(3, 1, 2, LENGTH, 4)
        with pytest.raises(BackendError, match=r"spread over ranks has no rule for torch\.func transforms"):
            torch.func.vmap(lambda t: attention(t, t, t, spread=self.held))(q)

    def test_too_few_heads_are_counted(self):
        def task(rank):
            held = spread(LENGTH, dist.group.WORLD, layout="contiguous")
            q = torch.ones(1, 2, len(held.tokens), 4)
            with pytest.raises(BackendError, match=r'way="heads" cannot run this call: Hq=2 query heads .* 3 ranks'):
                attention(q, q, q, spread=held, way="heads")
            return str(ways(q, q, q, spread=held, mask=hw.causal() & hw.window(before=2)))

        # gather: 2 tokens of another rank, K and V, 2 heads of 4 features of 4 bytes; queries: 19 tokens of q there,
        # and of 10 tokens 6 numbers back from each of 2 ranks
        assert (
            on_ranks(3, task)
            == [
                "gather   runs: the busiest rank receives 128 bytes in 1 step\n"
                "heads    Hq=2 query heads do not reach for 3 ranks\n"
                "queries  could run: the busiest rank receives 1.57 kB in 2 steps\n"
                "ring     could run: the busiest rank receives 128 bytes in 2 steps"
            ]
            * 3
        )


def test_the_way_that_moves_least_is_taken():
    def task(rank, Hk, mask):
        held = spread(24, dist.group.WORLD, layout="contiguous")
        q, k = torch.ones(1, 8, len(held.tokens), 4), torch.ones(1, Hk, len(held.tokens), 4)
        return ways(q, k, k, spread=held, mask=mask).chosen

    assert set(on_ranks(2, task, 8, hw.window(before=2))) == {"gather"}
    assert set(on_ranks(4, task, 8, None)) == {"heads"}
    assert set(on_ranks(4, task, 1, None)) == {"gather"}


def test_one_layout_serves_two_groups():
    q, k, v, _ = Case().tensors()
    layout = hw.distributed.zigzag(LENGTH, 2)

    def task(rank):
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "cp"))
        found = []
        for name in ("cp", "dp"):
            held = spread(LENGTH, mesh[name], layout=layout)
            mine = [
                held.local(t, dim=2) * (1 + mesh["dp" if name == "cp" else "cp"].get_local_rank()) for t in (q, k, v)
            ]
            found.append(held.whole(attention(*mine, spread=held, way="gather", mask=hw.causal(), scale=1.0), dim=2))
        return found

    for rank, found in enumerate(on_ranks(4, task)):
        for out, factor in zip(found, (1 + rank // 2, 1 + rank % 2), strict=True):
            want = hw.attention(q * factor, k * factor, v * factor, mask=hw.causal(), scale=1.0)
            torch.testing.assert_close(out, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("way", WAYS)
def test_a_row_without_a_key_or_a_sink_gives_zeros(way):
    case = Case()
    q, k, v, go = case.tensors()
    mask = hw.lengths(torch.tensor([0, LENGTH]))
    sink = torch.full((q.shape[1],), -torch.inf)
    found = joined(on_ranks(3, lambda rank: parts(rank, mask, (q, k, v, go), "zigzag", way, sink=sink)))
    assert not found["out"][0].any()
    assert all(t.isfinite().all() for t in found.values())
