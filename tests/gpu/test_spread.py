"""A sequence spread over ranks whose tensors are on one GPU: the numbers of one process, and NCCL with one rank."""

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import parallelize_module

import headwise as hw
from headwise.testing import assert_within_budget
from tests.distributed.calls import (
    LAYOUTS,
    MASKS,
    RULES,
    Attending,
    Case,
    assert_one_set_of_numbers,
    in_one_process,
    run,
)
from tests.distributed.split import CASES, inputs

DEVICE = "cuda"
WAYS = ("gather", "heads", "queries", "ring")


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("way", WAYS)
def test_one_set_of_numbers(way, ranks):
    for number, mask in enumerate(MASKS):
        layout = LAYOUTS[(number + ranks) % len(LAYOUTS)]
        assert_one_set_of_numbers(ranks, Case(mask, widths=(8, 8)), layout, way, device=DEVICE)
    for number, rule in enumerate(RULES):
        mask = ("causal", "documents", "a rule")[number % 3]
        assert_one_set_of_numbers(ranks, Case(mask, rule), LAYOUTS[number % len(LAYOUTS)], way, device=DEVICE)
    half = Case("documents", dtype=torch.bfloat16, widths=(8, 8))
    assert_one_set_of_numbers(ranks, half, "zigzag", way, device=DEVICE)


@pytest.fixture
def nccl(tmp_path):
    """A mesh of the one rank of an NCCL group."""
    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("nccl", rank=0, world_size=1, store=store, device_id=torch.device(DEVICE, 0))
    yield init_device_mesh(DEVICE, (1,), mesh_dim_names=("cp",))
    dist.destroy_process_group()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("mask", ["causal", "documents", "padding"])
def test_one_rank_of_nccl_gives_the_numbers_of_one_process(nccl, mask, way):
    case = Case(mask, widths=(8, 8))
    rules = {"mask": case.rules()["mask"].to(DEVICE)}
    held = hw.distributed.spread(case.length, nccl["cp"], mask=rules["mask"], layout="zigzag")
    # of one rank the tokens may be laid out in another order
    q, k, v, go = (held.local(t.to(DEVICE), dim=2) for t in case.tensors())

    def attend(*qkv, **more):
        return hw.distributed.attention(*qkv, spread=held, way=way, **more)

    found, (exact, plain) = run(attend, (q, k, v, go), rules), in_one_process(case, DEVICE)
    for name, t in found.items():
        assert_within_budget(held.whole(t, dim=2).cpu(), exact[name], plain[name])


def test_one_rank_of_nccl_has_the_map_of_one_process(nccl):
    q, k, v, _ = (t.to(DEVICE) for t in Case(widths=(8, 8)).tensors())
    held = hw.distributed.spread(q.shape[2], nccl["cp"], mask=hw.causal(), layout="zigzag")
    module = Attending()
    with torch.no_grad(), hw.watch(module) as seen:
        module(*(held.local(t, dim=2) for t in (q, k, v)), spread=held, mask=hw.causal())
    found, alone = seen[""], hw.attention_map(q, k, mask=hw.causal())
    for read in ("entropy", "received", "max_logit"):
        torch.testing.assert_close(getattr(found, read)(), getattr(alone, read)(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["Hk=2", "rotary", "relative", "additive"])
def test_one_rank_of_nccl_holds_all_heads_of_a_layer(nccl, name):
    case = CASES[name]
    layer = case.build().to(DEVICE)
    given = {key: t.to(DEVICE) for key, t in inputs().items()}
    alone = case.call(layer, given)
    split = parallelize_module(layer, nccl["cp"], hw.distributed.plan(layer))
    torch.testing.assert_close(case.call(split, given), alone, rtol=1e-4, atol=1e-5)
