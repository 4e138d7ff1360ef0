"""A plan names the layers, keeps the names of their parameters, and is saved and loaded between meshes."""

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed import checkpoint
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

import headwise as hw
from tests.distributed.processes import on_processes
from tests.distributed.ranks import on_ranks
from tests.distributed.split import CASES, E, inputs, made, made_by_rank, split, whole
from tests.distributed.test_head_shard import assert_same_numbers


def test_a_plan_names_every_layer_once() -> None:
    layer = hw.MultiHeadAttention(8, 2)
    model = nn.ModuleDict(
        {"a": layer, "again": layer, "b": nn.Sequential(hw.MultiHeadAttention(8, 4), nn.Linear(8, 8))}
    )
    assert list(hw.distributed.plan(model)) == ["a", "b.0"]
    assert list(hw.distributed.plan(layer)) == [""]


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (nn.TransformerEncoderLayer(8, 2), r"self_attn \(MultiheadAttention\) came.*hw\.compat\.convert"),
        (nn.ModuleDict({"a": hw.compat.torch.MultiheadAttention(8, 2)}), r"a \(MultiheadAttention\) came"),
        (nn.ModuleDict({"a": hw.compat.d2l.MultiHeadAttention(8, 2, 0.0)}), r"a \(MultiHeadAttention\) came"),
        (nn.Linear(8, 8), "Linear holds none"),
        ("model", "str came"),
    ],
    ids=["torch", "drop-in", "d2l", "none", "no module"],
)
def test_a_model_without_layers_to_split_is_refused(model: Any, said: str) -> None:
    with pytest.raises(hw.errors.ArgumentError, match=said):
        hw.distributed.plan(model)


def _refused(_: int, case: str) -> str:
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
    layer, style = hw.MultiHeadAttention(8, 2), hw.distributed.Heads()
    if case == "few heads":
        layer = hw.MultiHeadAttention(8, 1)
    elif case == "wrapped":
        layer.v_proj = nn.Sequential(layer.v_proj)
    elif case == "twice":
        parallelize_module(layer, mesh, style)
    elif case == "another":
        layer = nn.Linear(8, 8)
    elif case == "mesh":
        mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=("dp", "tp"))
        style._apply(layer, mesh)
    elif case == "torch's":
        parallelize_module(layer, mesh, {"q_proj": ColwiseParallel()})
        layer(torch.zeros(1, 3, 8))
    parallelize_module(layer, mesh, style)
    return ""


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("few heads", "num_heads=1 is less than the 2 ranks"),
        ("wrapped", "v_proj must be an nn.Linear.* is Sequential"),
        ("twice", "split over 2 ranks already"),
        ("another", "Linear came"),
        ("mesh", "it has 2,"),
        ("torch's", r"q_proj must give 2 heads of 4, 8 features, but gave 4.*hw\.distributed\.plan"),
    ],
)
def test_what_cannot_be_split_is_refused(case: str, said: str) -> None:
    with pytest.raises((hw.errors.ArgumentError, hw.errors.ShapeError), match=said):
        on_ranks(2, _refused, case)


class Two(nn.Module):
    """Two layers that share a table of positions, and a projection."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.first = hw.MultiHeadAttention(E, 4, head_dim=3, position=hw.RelativeBias(), qk_norm="rms", num_kv_heads=2)
        shared = hw.RelativeBias(shared=self.first.position)
        self.second = hw.MultiHeadAttention(E, 4, head_dim=3, position=shared, score=hw.DotProduct(sink="learned"))
        self.out = nn.Linear(E, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.second(x + self.first(x, mask=hw.causal()), mask=hw.causal()))


def _two(ranks: int) -> nn.Module:
    mesh, model = init_device_mesh("cpu", (ranks,), mesh_dim_names=("tp",)), Two()
    return parallelize_module(model, mesh["tp"], hw.distributed.plan(model))


def _trained(model: nn.Module, steps: int) -> Tensor:
    optimizer, x = torch.optim.AdamW(model.parameters(), lr=0.01), inputs()["x"]
    for _ in range(steps):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    return model(x).detach()


# what a process returns is pickled by value: a tensor would come as a file of a process that has ended
def _saved(_: int, ranks: int, folder: str) -> bytes:
    model = _two(ranks)
    out = _trained(model, 3)
    checkpoint.save(model.state_dict(), checkpoint_id=folder)
    # ranks are seeded alike, and drop other pairs of other heads
    torch.manual_seed(1)
    drawn = torch.rand(3, generator=model.first._share.generator(torch.device("cpu")))
    return pickle.dumps((out, list(model.state_dict()), drawn))


def _loaded(_: int, ranks: int, folder: str) -> bytes:
    model = _two(ranks)
    state = model.state_dict()
    for t in state.values():
        t.zero_()
    checkpoint.load(state, checkpoint_id=folder)
    model.load_state_dict(state)
    return pickle.dumps((model(inputs()["x"]).detach(), {name: whole(t) for name, t in state.items()}))


def test_a_model_is_trained_saved_and_loaded_between_meshes(tmp_path: Path) -> None:
    saved = on_processes(2, _saved, 2, str(tmp_path))
    assert [each.error for each in saved] == [None, None]
    (out, names, drawn), (again, _, other) = (pickle.loads(each.result) for each in saved)
    assert torch.equal(out, again)
    assert not torch.equal(drawn, other)
    one = Two()
    torch.testing.assert_close(out, _trained(one, 3))
    assert names == list(one.state_dict())
    loaded = on_processes(4, _loaded, 4, str(tmp_path))
    assert [each.error for each in loaded] == [None] * 4
    # and by one process, without a mesh
    state = {name: torch.zeros_like(t) for name, t in one.state_dict().items()}
    with pytest.warns(UserWarning, match="single process"):
        checkpoint.load(state, checkpoint_id=str(tmp_path), no_dist=True)
    for came, weights in (pickle.loads(each.result) for each in loaded):
        torch.testing.assert_close(came, out)
        assert all(torch.equal(weights[name], t) for name, t in state.items())
    one.load_state_dict(state)
    torch.testing.assert_close(one(inputs()["x"]).detach(), out)


SOME = ["Hk=3", "rms", "memory", "7 heads"]


def _all_of_some(rank: int, ranks: int) -> bytes:
    return pickle.dumps([made_by_rank(rank, ranks, CASES[name].build(), CASES[name].call) for name in SOME])


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_processes_give_the_numbers_that_threads_give(ranks: int) -> None:
    ended = on_processes(ranks, _all_of_some, ranks)
    assert [each.error for each in ended] == [None] * ranks
    came = [pickle.loads(each.result) for each in ended]
    for number, name in enumerate(SOME):
        layer, call = CASES[name].build(), CASES[name].call
        exact = made(copy.deepcopy(layer).double(), call, torch.float64)
        assert_same_numbers([each[number] for each in came], exact, made(layer, call, torch.float32))


def test_the_layer_split_and_the_one_that_was_copied_are_apart() -> None:
    def names(_: int, layer: hw.MultiHeadAttention) -> list[str]:
        part = copy.deepcopy(split(layer, 2))
        assert part._share.Hq == 6
        return list(part.state_dict())

    layer = CASES["sink"].build()
    assert on_ranks(2, names, layer) == [list(layer.state_dict())] * 2
    assert layer._share.Hq == 12
