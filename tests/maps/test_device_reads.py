"""Nothing of a map reads a device: fake tensors, which refuse to be read, give every reading that is a tensor.

Not here, since what they give is no tensor: repr, save, check(), and the check of an index that is itself on a device.
"""

from contextlib import nullcontext
from importlib import import_module
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode
from torch.utils import _pytree as pytree

import headwise as hw
from headwise.analysis import rollout
from headwise.maps import attention_map, lse, rows, scan, score_tiles, statistics
from headwise.maps.files import LoadedMaps
from headwise.masks import host_tiles
from headwise.masks.host_tiles import host_tiles as tiles_on_host
from headwise.ops.call import checked
from headwise.testing import assert_within_budget
from tests.cases import DIFFERENT, MASKS, Shape, rules, tensors
from tests.maps.oracle import BY_LSE, OF_SCORES, OF_WEIGHTS, Dense, doubled, inputs, made

# headwise.analysis.token_flow is the function
ROLLOUT = import_module("headwise.analysis.token_flow")
SQUARE = Shape(Lk=5)
MORE = {
    "statistics": lambda m: m.statistics(pooled=(2, 3), how="max", topk=2),
    "mass": lambda m: m.mass(),
    "weighted rows": lambda m: m.weighted_rows(m.entropy()[:, 0]),
    "kinds of tiles": lambda m: m.tiles(block=(2, 3)),
    "mean of heads": lambda m: (m.mean_heads().entropy(), m.mean_heads().topk(2), m.mean_heads()[0, 0, 1]),
    "rollout": lambda m: rollout(LoadedMaps({"0": m, "1": m.detach()}, None), token=-2),
    "gradient": lambda m: torch.autograd.grad(m.entropy().sum() + m.lse.sum(), m._call.q),
}
READINGS = {name: of_map for table in (OF_WEIGHTS, OF_SCORES) for name, (of_map, _) in table.items()} | MORE


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors on the CPU are taken for those of a device, which nobody reads."""
    for module in (host_tiles, rows, score_tiles, scan, lse, statistics, ROLLOUT):
        monkeypatch.setattr(module, "values_are_at_hand", lambda t: False)


def faked(mode: FakeTensorMode, given: Any) -> Any:
    """The same with fake tensors, which have no numbers."""
    return pytree.tree_map_only(Tensor, mode.from_tensor, given)


@pytest.mark.parametrize("mask", ["no mask", "padding and causal", "documents", "a rule"])
def test_every_reading_of_a_map_on_a_device_reads_no_number(mask: str) -> None:
    given = inputs(SQUARE, **rules(mask, "all of them", SQUARE))
    known = torch.zeros(SQUARE.B, SQUARE.Hq, SQUARE.Lq)
    # outside of the mode what stays on the host has numbers, inside nothing has: no tensor made on the way escapes
    for is_inside in (False, True):
        mode = FakeTensorMode(allow_non_fake_inputs=True)
        for name, of_map in READINGS.items():
            if is_inside and name == "scattered":
                # its index would be on the device
                continue
            with mode if is_inside else nullcontext():
                q = faked(mode, given["q"]).requires_grad_(name == "gradient")
                rest = faked(mode, {key: x for key, x in given.items() if key != "q"})
                found = of_map(attention_map(q, **rest, lse=faked(mode, known) if is_inside else None))
            assert all(isinstance(t, Tensor) for t in pytree.tree_leaves(found)), name


def test_fake_tensors_refuse_to_be_read() -> None:
    # so that the test above can fail
    with FakeTensorMode() as mode, pytest.raises(DataDependentOutputException, match="_local_scalar_dense"):
        attention_map(*(mode.from_tensor(t) for t in tensors()[:2])).check()


@pytest.mark.parametrize("mask", ["padding and causal", "an empty row"])
@pytest.mark.parametrize("name", [*OF_WEIGHTS, *OF_SCORES])
@pytest.mark.usefixtures("unread")
def test_what_is_not_read_gives_the_same_numbers(name: str, mask: str) -> None:
    given = inputs(**rules(mask, "all of them", DIFFERENT))
    exact, plain = Dense(**doubled(given)), Dense(**given)
    for with_lse in (False, True):
        m = made(given, with_lse=with_lse)
        if name in OF_SCORES:
            of_map, of_dense = OF_SCORES[name]
            assert_within_budget(of_map(m), of_dense(exact), of_dense(plain))
        else:
            of_weights, of_p = OF_WEIGHTS[name]
            yardstick = plain.weights_by_lse if name in BY_LSE else plain.weights
            assert_within_budget(of_weights(m), of_p(exact.weights), of_p(yardstick))


def numbers_of(given: dict[str, Any], factors: Tensor, told: Tensor) -> list[Tensor]:
    """Statistics, sums with factors, gradients, an lse that was told, and a rollout."""
    m = attention_map(given["q"].clone().requires_grad_(), **{name: x for name, x in given.items() if name != "q"})
    found = m.statistics(pooled=(2, 3), topk=2)
    gradient = torch.autograd.grad(found.entropy.sum() + found.max_logit.sum(), m._call.q)
    m = m.detach()
    by_lse = attention_map(**given, lse=told)
    return [
        *pytree.tree_leaves(found), *gradient, m.weighted_rows(factors), m.lse, m.mean_heads().received(), by_lse.lse,
        by_lse[..., 1], *(rollout(LoadedMaps({"0": m, "1": m, "2": m}, None), token=token) for token in (0, 3)),
    ]  # fmt: skip


def test_what_is_not_a_number_stays_where_it_is(monkeypatch: pytest.MonkeyPatch, request: Any) -> None:
    given = inputs(SQUARE, **rules("padding and causal", "all of them", SQUARE))
    given["k"][1, :, 4] = float("nan")
    given["q"][0, 2, 3] = float("inf")
    given["q"][0, 1, 4] = float("nan")
    given["attn_bias"][0, 0, 1, 0] = float("-inf")
    given["attn_bias"][1, 3, 2] = -1e6
    factors = torch.tensor([[0.0, 1.5, 0.0, 0.0, 0.0], [0.0, -2.0, 0.0, 1.0, 0.0]])
    # the row of -1e6 is computed anew, since float32 leaves its lse no digits
    told = attention_map(**given).lse + 1e-3
    monkeypatch.setattr(ROLLOUT, "FEW", 1)
    want = numbers_of(given, factors, told)
    request.getfixturevalue("unread")
    for found, wanted in zip(numbers_of(given, factors, told), want, strict=True):
        # sums over more columns, of which those that are hidden add 0
        torch.testing.assert_close(found, wanted, equal_nan=True)


def on_meta(mask: hw.Mask) -> hw.Mask:
    return mask.to("meta")


IDS = torch.tensor([[0] * 9 + [1] * 11, [0] * 4 + [2] * 16])
KEEP = torch.arange(20) < 15


@pytest.mark.parametrize(
    ("mask", "known"),
    [
        (hw.causal() & on_meta(hw.documents(IDS)), (0, 1, 1)),
        (hw.causal() | on_meta(hw.keys(KEEP[None])), (1, 1, 2)),
        (~(hw.window(before=3) & on_meta(hw.documents(IDS))), (2, 1, 1)),
        (hw.causal().at(*(torch.arange(20, device="meta"),) * 2), None),
        (on_meta(hw.documents(IDS)), None),
        (hw.rule(lambda b, h, i, j: i >= j), None),
    ],
    ids=str,
)
def test_of_a_mask_on_a_device_the_host_knows_what_needs_no_reading(mask: hw.Mask, known: Any) -> None:
    q = torch.empty(2, 6, 20, 8, device="meta")
    found = tiles_on_host(mask, checked(q, q, q).sizes, (4, 4), q.device)
    if known is None:
        assert found is None
        return
    # what a causal mask hides, cuts and leaves whole becomes these kinds
    kinds = (hw.window(before=3) if "window" in repr(mask) else hw.causal()).tiles(20, 20, block=(4, 4))
    assert torch.equal(found[:1, :1], torch.tensor(known, dtype=torch.int8)[kinds.long()])


@pytest.mark.parametrize("mask", [name for name in MASKS if name != "no mask"])
def test_on_the_host_all_tiles_are_known(mask: str) -> None:
    given = MASKS[mask](DIFFERENT)
    q, k, v = tensors()
    call = checked(q, k, v, mask=given)
    assert torch.equal(
        tiles_on_host(call.mask, call.sizes, (2, 3), q.device),
        call.mask.tiles(5, 7, block=(2, 3), batch=2, heads=6),
    )


def test_what_a_causal_mask_hides_of_a_map_on_a_device_is_not_computed() -> None:
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    q, ids = faked(mode, (torch.zeros(1, 2, 1000, 8), torch.zeros(1, 1000, dtype=torch.int64)))
    found: list[int] = []
    call = checked(q, q, q, mask=hw.causal() & hw.documents(ids))
    rows.read_rows(call, lambda block: found.append(block.powers.numel()))
    # blocks of 512 rows by grids of 64 columns
    assert sum(found) == 2 * (512 * 512 + 488 * 1000)
