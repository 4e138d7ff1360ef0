"""Scores as large as a bias can make them: every reading is still that of the softmax, and agrees with the others."""

import pytest
import torch
from torch import Tensor

import headwise as hw
from headwise.maps import AttentionMap, attention_map
from headwise.ops import reference
from headwise.ops.call import checked
from headwise.testing import assert_within_budget
from tests.cases import DIFFERENT, tensors
from tests.maps.oracle import OF_SCORES, OF_WEIGHTS, doubled, made
from tests.maps.test_gradients import gradients, leaves
from tests.maps.test_lse import ROUNDING

READINGS = OF_WEIGHTS | OF_SCORES


class Rounded:
    """The definition in float64, of scores that are rounded to float32 once, as a model rounds them."""

    def __init__(self, dtype: torch.dtype, **case) -> None:
        rules = {name: value for name, value in case.items() if name not in ("q", "k")}
        call = checked(case["q"].to(dtype), case["k"].to(dtype), case["k"].to(dtype), **rules)
        scores, allowed = reference.scores(call), reference.open_pairs(call)
        # the derivative is that of the scores before
        scores = scores + (scores.float().to(dtype) - scores).detach()
        if allowed is not None:
            scores = torch.where(allowed, scores, float("-inf"))
        self.logits = scores
        column = [] if call.sink is None else [call.sink.to(dtype)[:, None, None].expand(*scores.shape[:3], 1)]
        self.weights = torch.cat([scores, *column], dim=-1).softmax(-1)[..., : scores.shape[-1]].nan_to_num(0.0)
        base = torch.cat([scores, *column], dim=-1).amax(-1, keepdim=True).detach().nan_to_num(neginf=0.0)
        self.lse = base[..., 0] + (torch.cat([scores, *column], dim=-1) - base).logsumexp(-1)


def read(name: str, case: dict, dtype: torch.dtype) -> Tensor:
    found = Rounded(dtype, **case)
    return READINGS[name][1](found if name in OF_SCORES else found.weights)


def whole_numbers(dtype: torch.dtype, seed: int = 0) -> dict:
    """q and k whose scores are quarters, so that no order of adding them up is rounded."""
    q, k, _ = tensors(DIFFERENT, torch.float64, seed)
    return {"q": q.round().to(dtype), "k": k.round().to(dtype), "scale": 0.25}


def closing(least: float, dtype: torch.dtype) -> Tensor:
    """A causal bias that also closes the first four keys of the second sample, the way an eager decoder adds it."""
    open_ = hw.causal().allowed(5, 7).repeat(2, 1, 1, 1)
    open_[1, ..., :5] = False
    return torch.zeros(2, 1, 5, 7, dtype=dtype).masked_fill(~open_, least)


BIASES = {
    "everything by -1e4": lambda dtype: torch.full((5, 7), -1e4, dtype=dtype),
    "everything by -1e6": lambda dtype: torch.full((5, 7), max(-1e6, torch.finfo(dtype).min), dtype=dtype),
    "everything by -1e9": lambda dtype: torch.full((5, 7), max(-1e9, torch.finfo(dtype).min), dtype=dtype),
    "everything by the least": lambda dtype: torch.full((5, 7), torch.finfo(dtype).min, dtype=dtype),
    "everything by the most": lambda dtype: torch.full((5, 7), torch.finfo(dtype).max / 2, dtype=dtype),
    "left padding by -1e4": lambda dtype: closing(-1e4, dtype),
    "left padding by the least": lambda dtype: closing(torch.finfo(dtype).min, dtype),
    "least beside most": lambda dtype: (
        closing(torch.finfo(dtype).min, dtype) + torch.finfo(dtype).max * (torch.arange(7) % 3 == 1).to(dtype)
    ),
    "least beside nothing": lambda dtype: closing(torch.finfo(dtype).min, dtype).index_fill(
        2, torch.tensor([1]), float("-inf")
    ),
}
SINKS = {
    "no sink": None,
    "a sink": torch.linspace(-2, 2, 6),
    "a sink of 1e9": torch.full((6,), 1e9),
    "a sink of -1e9": torch.full((6,), -1e9),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("sink", SINKS)
@pytest.mark.parametrize("bias", BIASES)
def test_every_reading_is_that_of_the_softmax(bias, sink, dtype):
    draws = [whole_numbers(dtype, seed) | {"attn_bias": BIASES[bias](dtype), "sink": SINKS[sink]} for seed in range(2)]
    for with_lse in (False, True):
        for name, (ours, _) in READINGS.items():
            maps = [made(draw, with_lse=with_lse) for draw in draws]
            got = torch.cat([ours(m) for m in maps])
            exact, plain = (torch.cat([read(name, draw, d) for draw in draws]) for d in (torch.float64, torch.float32))
            assert_within_budget(got, exact, plain)
            # and again when everything is kept
            for m in maps:
                m.entropy()
            assert_within_budget(torch.cat([ours(m) for m in maps]), exact, plain)
        assert max(made(draw, with_lse=with_lse).check() for draw in draws) < ROUNDING


# of equal scores, which bears the gradient of a maximum is open
SMOOTH = sorted({*READINGS, "scattered pairs"} - {"max_logit", "picture of peaks"})


@pytest.mark.parametrize("sink", ["no sink", "a sink"])
@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize("name", SMOOTH)
def test_every_gradient_is_that_of_the_softmax(name, bias, sink, monkeypatch):
    case = whole_numbers(torch.float32) | {"attn_bias": BIASES[bias](torch.float32), "sink": SINKS[sink]}
    case = {key: value for key, value in case.items() if value is not None}
    places = (0, slice(None), torch.tensor([0, 4, 1]), torch.tensor([1, 0, 6]))
    for with_lse in (False, True):
        given, wide = leaves(case), leaves(doubled(case))
        if name == "scattered pairs":
            monkeypatch.setattr("headwise.maps.matrix.SMALL", 0)
            monkeypatch.setattr("headwise.maps.matrix.WASTE", 1)
            got, exact = made(given, with_lse=with_lse)[places], Rounded(torch.float64, **wide).weights[places]
            plain = Rounded(torch.float32, **given).weights[places]
        else:
            got = READINGS[name][0](made(given, with_lse=with_lse))
            exact, plain = read(name, wide, torch.float64), read(name, given, torch.float32)
        assert_within_budget(got, exact, plain)
        found = [gradients(r, g, 5) for r, g in ((got, given), (exact, wide), (plain, given))]
        assert_within_budget(*found, factor=4.0)


@pytest.mark.parametrize("entries", [0, 1 << 20])
@pytest.mark.parametrize("with_grad", [False, True])
@pytest.mark.parametrize(
    "index",
    [
        (slice(None), slice(None), slice(None), slice(1, 4)),
        (slice(None), slice(None), slice(None), torch.tensor([5, 0])),
        (slice(None), 3, slice(1, 4), slice(2, 3)),
        (slice(None), slice(4, 6), slice(None), 0),
        (torch.tensor([1, 0]), slice(1, 6, 2), torch.tensor([4, 2]), slice(0, 5)),
    ],
    ids=str,
)
@pytest.mark.parametrize("bias", ["everything by -1e4", "left padding by the least"])
def test_a_part_is_that_of_the_whole_rows(bias, index, with_grad, entries, monkeypatch):
    monkeypatch.setattr("headwise.maps.map.ENTRIES", entries)
    case = whole_numbers(torch.float32) | {"attn_bias": BIASES[bias](torch.float32)}
    case["q"].requires_grad_(with_grad)
    whole = made(case).dense().detach()
    assert_within_budget(made(case)[index].detach(), whole[index].double(), whole[index])


@pytest.mark.parametrize("heads", [[1], [0, 5], [2, 3], [4]])
def test_rows_of_some_heads_of_all_samples_are_computed_anew_alone(heads):
    bias = torch.zeros(2, 6, 5, 7)
    bias[:, heads, 2:4] = -1e6
    case = whole_numbers(torch.float32) | {"attn_bias": bias}
    m, dense = made(case, with_lse=True), made(case).dense()
    assert m.check() < ROUNDING
    assert_within_budget(m.received(), dense.double().sum(-2), dense.sum(-2))


@pytest.mark.parametrize("bias", ["left padding by the least", "left padding by -1e4", "everything by -1e9"])
def test_the_lse_of_a_kernel_does_not_blur_a_row_that_is_closed(bias):
    q, k = (torch.randn(2, 6, n, 16, generator=torch.Generator().manual_seed(n)) for n in (5, 7))
    case = {"q": q, "k": k, "attn_bias": BIASES[bias](torch.float32)}
    _, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, k, attn_mask=case["attn_bias"])
    m = attention_map(**case, lse=lse)
    assert m.check() < ROUNDING
    exact, plain = Rounded(torch.float64, **doubled(case)), Rounded(torch.float32, **case)
    for name in ("entropy", "received", "distance", "one column"):
        ours, theirs = OF_WEIGHTS[name]
        assert_within_budget(ours(m), theirs(exact.weights), theirs(plain.weights))


def test_only_rows_whose_lse_is_blurred_are_computed_anew():
    case = whole_numbers(torch.float32) | {"attn_bias": BIASES["left padding by the least"](torch.float32)}
    lse = made(case).lse
    closed = lse < -1e4
    assert 0 < int(closed.sum()) < closed.numel()
    # an lse that is 1 too large leaves a row the sum 1/e, where it is believed
    m = attention_map(**case, lse=torch.where(closed, lse, lse + 1.0))
    sums = torch.stack([m[..., column] for column in range(7)]).sum(0)
    wanted = torch.where(closed, 1.0, torch.tensor(-1.0, dtype=torch.float64).exp())
    assert_within_budget(sums, wanted, (torch.where(closed, 0.0, -1.0)).exp())


@pytest.mark.parametrize("wrong", [-1e9, 1e9, -2e4, 3e38, float("-inf")])
def test_a_large_lse_that_does_not_fit_still_shows(wrong):
    case = whole_numbers(torch.float32) | {"attn_bias": BIASES["everything by -1e4"](torch.float32)}
    assert attention_map(**case, lse=torch.full((2, 6, 5), wrong)).check() > 100 * ROUNDING


@pytest.mark.parametrize("bias", BIASES)
def test_what_is_known_of_large_scores_is_copied_and_saved_with_them(bias, tmp_path):
    m = made(whole_numbers(torch.float32) | {"attn_bias": BIASES[bias](torch.float32)})
    before = m.entropy()
    m.save(tmp_path / "m")
    for again in (m.cpu(), m.detach(), AttentionMap.load(tmp_path / "m")):
        assert again.check() < ROUNDING
        assert_within_budget(again.entropy(), before.double(), before)
        assert torch.equal(again.max_logit(), m.max_logit())
