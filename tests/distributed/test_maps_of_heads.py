"""Maps of layers whose heads are split over ranks: all heads, and the same bits, on every rank."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import parallelize_module

import headwise as hw
from headwise.distributed.spread import spread
from headwise.errors import ArgumentError
from headwise.maps import AttentionMap
from headwise.wording import Refusal
from tests.distributed.ranks import on_ranks
from tests.distributed.readings import assert_readings, readings
from tests.distributed.split import CASES, B, Case, D, E, L, inputs, split
from tests.maps.oracle import Dense


def _one_each() -> hw.Mask:
    return hw.allowed(torch.rand(B, 3, L, L, generator=torch.Generator().manual_seed(7)) > 0.3)


# where a rank has one head, what differs by head looks like what does not
ONE_EACH = Case(3, {"position": hw.Alibi()}, lambda layer, t: layer(t["x"], mask=_one_each()))
# all kinds of a mask, bias, weight or key head that may differ by head, and on how many ranks
RUNS = {"Hk=3": 2, "Hk=1": 3, "rotary": 3, "alibi": 2, "relative": 3, "7 heads": 2, "additive, 7 heads": 3,
        "mask of heads": 3, "rule of heads": 2, "bias of heads": 2, "bias of all": 3, "cross": 2, "one head each": 3,
        "sink": 2}  # fmt: skip


def seen_in(layer: nn.Module, case: Case, dtype: torch.dtype = torch.float32) -> AttentionMap:
    given = {name: t.to(dtype) for name, t in inputs().items()}
    with torch.no_grad(), hw.watch(layer.to(dtype)) as seen:
        case.call(layer, given)
    assert not seen.unseen
    return seen[""]


def dense_of(m: AttentionMap) -> Dense:
    call, _ = m.stored()
    rules = {name: getattr(call, name) for name in ("mask", "attn_bias", "scale", "softcap", "sink", "weight")}
    return Dense(q=call.q, k=call.k, **rules)


@pytest.mark.parametrize(("name", "ranks"), RUNS.items(), ids=str)
def test_every_reading_has_all_heads(name: str, ranks: int) -> None:
    case = {**CASES, "one head each": ONE_EACH}[name]
    layer = case.build()
    plain, exact = seen_in(layer, case), seen_in(copy.deepcopy(layer), case, torch.float64)

    def task(rank: int) -> tuple[dict[str, Tensor], Tensor, Tensor, list[int]]:
        m = seen_in(split(layer, ranks), case)
        own = m.axes.heads.own
        entropy = m.entropy()
        return readings(m), entropy[:, own] - m.local.entropy(), m.tiles(block=(4, 3)), list(m.stored()[0].k.shape)

    found = on_ranks(ranks, task)
    assert_readings([each for each, *_ in found], dense_of(exact), dense_of(plain), (name, ranks))
    for _, difference, tiles, k in found:
        assert not difference.any()
        assert torch.equal(*torch.broadcast_tensors(tiles, plain.tiles(block=(4, 3))))
        # key heads that several ranks read are stored once
        assert k == list(plain.stored()[0].k.shape)


def test_steps_of_decoding_are_joined_with_all_heads() -> None:
    case = CASES["rotary"]
    layer = case.build()

    def steps(own: nn.Module, dtype: torch.dtype) -> AttentionMap:
        x, cache = inputs()["x"].to(dtype), own.to(dtype).cache()
        with torch.no_grad(), hw.watch(own) as seen:
            for t in range(0, L, 3):
                own(x[:, t : t + 3], mask=hw.causal(), cache=cache)
        return seen.joined("")

    plain, exact = steps(layer, torch.float32), steps(copy.deepcopy(layer), torch.float64)
    found = on_ranks(2, lambda rank: readings(steps(split(layer, 2), torch.float32)))
    assert_readings(found, dense_of(exact), dense_of(plain), "steps")


def test_heads_and_rows_may_both_be_shared() -> None:
    mask = hw.causal() & hw.rule(lambda b, h, i, j: (i - j) % (h + 2) < 2)
    given: dict[str, Any] = {"num_kv_heads": 3, "position": hw.Alibi(), "score": hw.DotProduct(sink="learned")}
    case = Case(given=given, call=lambda layer, t: layer(t["x"], mask=mask))
    layer = case.build()
    plain, exact = seen_in(layer, case), seen_in(copy.deepcopy(layer), case, torch.float64)

    def task(rank: int) -> tuple[dict[str, Tensor], list[int]]:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("cp", "tp"))
        own = copy.deepcopy(layer)
        parallelize_module(own, mesh["tp"], hw.distributed.plan(own))
        held = spread(L, mesh["cp"], mask=mask, layout="zigzag")
        with torch.no_grad(), hw.watch(own) as seen:
            own(held.local(inputs()["x"]), mask=mask, spread=held)
        return readings(seen[""]), [*seen[""].local.shape[1:3]]

    found = on_ranks(4, task)
    assert [sizes for _, sizes in found] == [[6, 5], [6, 5], [6, 4], [6, 4]]
    assert_readings([each for each, _ in found], dense_of(exact), dense_of(plain), "both")


@pytest.mark.needs("matplotlib")
def test_a_figure_of_shared_maps_is_written_once(tmp_path: Path) -> None:
    file = tmp_path / "maps.png"
    layer = CASES["rotary"].build()

    def task(rank: int) -> bytes:
        part = split(layer, 2)
        with torch.no_grad(), hw.watch(part) as seen:
            part(inputs()["x"], mask=hw.causal())
        hw.look(seen, output=file)
        drawn = file.read_bytes()
        with pytest.raises(Refusal, match=r"must be a new file, but .*maps.png exists"):
            hw.look(seen, output=file)
        return drawn

    drawn, other = on_ranks(2, task)
    assert drawn == other
    assert drawn.startswith(b"\x89PNG")


def test_maps_that_different_ranks_share_do_not_go_into_one_file(tmp_path: Path) -> None:
    model = nn.ModuleList([hw.MultiHeadAttention(E, 4, head_dim=D) for _ in range(2)])

    def task(_: int) -> None:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("cp", "tp"))
        held = [spread(length, mesh[name]) for length, name in ((L, "cp"), (L - 1, "tp"))]
        with torch.no_grad(), hw.watch(model) as seen:
            for layer, here in zip(model, held, strict=True):
                layer(here.local(inputs()["x"][:, : here.length]), spread=here)
        told = f"one shares {L} over 2 ranks and another {L - 1} over 2 ranks of another group: write each"
        with pytest.raises(ArgumentError, match=told):
            seen.save(tmp_path / "maps.safetensors")

    on_ranks(4, task)
    assert list(tmp_path.iterdir()) == []


def test_a_split_layer_that_nobody_watches_makes_nothing_of_its_axis(monkeypatch: pytest.MonkeyPatch) -> None:
    def task(rank: int) -> Tensor:
        return split(hw.MultiHeadAttention(E, 4, head_dim=D), 2)(inputs()["x"])

    monkeypatch.setattr("headwise.distributed.head_shard.HeadShare._axis", None)
    assert on_ranks(2, task)[0].shape == (2, L, E)
