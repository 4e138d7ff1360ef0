"""What a page carries of a map is what the map says."""

import pytest
import torch

import headwise as hw
from headwise.pages.encode_maps import CLOSED, NOTHING, bytes_needed, carry, fitting_block, thumbs
from headwise.pages.weight_codes import EMPTY, LAST, MASKED, NAN, ZERO, decoded, encoded
from tests.pages.made import a_map, with_nan


@pytest.mark.parametrize(
    "mask",
    [None, hw.causal(), hw.lengths(torch.tensor([3, 0])), hw.window(before=1, after=2)],
    ids=["none", "causal", "lengths", "window"],
)
def test_codes_and_sums_are_those_of_the_chosen_sample(mask):
    made = a_map(B=2, Lq=37, Lk=41, mask=mask)
    for sample in (0, 1):
        carried = carry(made, sample=sample, block=1, exact=[2, 30])
        weights, hidden = made[sample], made.logits[sample] == float("-inf")
        assert torch.equal(carried.codes <= MASKED, hidden)
        seen = weights > 2.0**-28
        off = ((decoded(carried.codes) - weights).abs() / weights)[seen]
        assert off.numel() == 0 or float(off.max()) < 0.04
        without = hidden.all(-1)
        entropy = made.entropy()[sample]
        assert torch.equal(carried.entropy, entropy.masked_fill(without, NOTHING))
        wanted = [
            float(e[~none].mean()) if not none.all() else NOTHING for e, none in zip(entropy, without, strict=True)
        ]
        assert carried.mean_entropy.tolist() == pytest.approx(wanted, rel=1e-5)
        assert torch.equal(carried.received, made.received()[sample])
        assert torch.equal(carried.distance, made.distance()[sample])
        assert list(carried.exact) == [2, 30]
        marks = torch.where(without[:, 30, None], NOTHING, CLOSED).expand(-1, 41)
        assert torch.equal(carried.exact[30], torch.where(hidden[:, 30], marks, made[sample, :, 30]))
        assert carried.hidden == pytest.approx(float(hidden.float().mean()))
        assert carried.empty == int(hidden.all(-1).sum())


@pytest.mark.parametrize(
    ("mask", "is_causal"),
    [
        (None, False),
        (hw.causal(), True),
        (hw.causal() & hw.window(keys=3), True),
        (hw.window(before=1, after=1), False),
        (hw.lengths(torch.tensor([0])), False),
        (~hw.causal() | hw.window(keys=6), False),
    ],
    ids=["none", "causal", "causal window", "both ways", "empty", "ahead"],
)
def test_causal_is_said_only_of_maps_in_which_no_query_looks_ahead(mask, is_causal):
    assert carry(a_map(Lq=6, Lk=9, mask=mask), sample=0, block=1, exact=[]).is_causal is is_causal


def test_nan_and_empty_rows_are_counted_and_coded():
    made = with_nan(row=2)
    carried = carry(made, sample=0, block=1, exact=[])
    assert (carried.nan, carried.empty) == (1, 0)
    assert carried.codes[0, 2].tolist() == [NAN, NAN, NAN, MASKED, MASKED, MASKED]
    more = carry(a_map(Lq=5, Lk=3, mask=hw.causal()), sample=0, block=1, exact=[])
    assert more.empty == 2 * 3
    assert set(more.codes[:, :2].flatten().tolist()) == {EMPTY}


@pytest.mark.parametrize("block", [2, 5, 100])
def test_pooled_codes_are_the_largest_and_pooled_sums_the_means(block):
    made = a_map(Lq=23, Lk=31, mask=hw.causal())
    carried = carry(made, sample=0, block=block, exact=[])
    hidden = made.logits[0] == float("-inf")
    assert torch.equal(carried.codes, encoded(made[0], hidden, block))
    rows = [made.entropy()[0, :, n : n + block].mean(-1) for n in range(0, 23, min(block, 23))]
    torch.testing.assert_close(carried.entropy, torch.stack(rows, dim=-1))
    assert carried.block == (min(block, 23), min(block, 31))


def test_strips_of_a_long_map_give_the_codes_of_the_whole(monkeypatch):
    made = a_map(Lq=29, Lk=31, mask=hw.causal())
    whole = carry(made, sample=0, block=4, exact=[])
    monkeypatch.setattr("headwise.pages.encode_maps.ENTRIES", 300)
    parts = carry(made, sample=0, block=4, exact=[])
    assert torch.equal(parts.codes, whole.codes)
    assert (parts.hidden, parts.is_causal, parts.empty, parts.nan) == (whole.hidden, True, whole.empty, whole.nan)


def test_thumbs_are_small_and_show_the_largest():
    made = a_map(Lq=70, Lk=50, mask=hw.causal())
    small = thumbs(made, 0)
    assert tuple(small.shape) == (3, 24, 17)
    assert torch.equal(small, encoded(made[0], made.logits[0] == float("-inf"), 3))


def test_the_mean_of_heads_is_carried_as_one_head():
    mean = a_map(mask=hw.causal()).mean_heads()
    carried = carry(mean, sample=0, block=1, exact=[1])
    assert carried.codes.shape[0] == 1
    assert torch.equal(carried.exact[1][0].clamp(min=0), mean[0, 0, 1])
    assert carried.exact[1][0, 4:].tolist() == [CLOSED] * 3


def test_the_smallest_block_that_fits_is_taken_and_none_where_none_does():
    shapes = [(1, 12, 2048, 2048)] * 6
    block = fitting_block(shapes, 12_000_000)
    assert bytes_needed(shapes, block) <= 12_000_000 < bytes_needed(shapes, block - 1)
    assert fitting_block(shapes, 10_000) is None
    assert fitting_block([(1, 1, 1, 1)], 10_000) == 1


def test_one_query_that_sees_some_keys_is_not_called_causal():
    keep = torch.tensor([[True, False, True, True]])
    assert carry(a_map(Lq=1, Lk=4, mask=hw.keys(keep)), sample=0, block=1, exact=[]).is_causal is False


@pytest.mark.parametrize("large", [torch.finfo(torch.float32).min, -1e9, -1e4], ids=["least", "-1e9", "-1e4"])
def test_a_large_negative_number_in_the_place_of_minus_infinity_is_a_mask(large):
    q, k = torch.randn(1, 3, 6, 4), torch.randn(1, 3, 6, 4)
    soft = hw.attention_map(q, k, attn_bias=torch.full((6, 6), large).triu(1))
    carried, wanted = (
        carry(each, sample=0, block=1, exact=[2]) for each in (soft, hw.attention_map(q, k, mask=hw.causal()))
    )
    assert carried.is_causal
    assert carried.hidden == wanted.hidden
    assert torch.equal(carried.codes, wanted.codes)
    assert carried.exact[2][:, 3:].tolist() == [[CLOSED] * 3] * 3


def test_a_weight_that_is_zero_because_its_score_is_low_is_not_masked():
    q = torch.tensor([[[[30.0]]]])
    made = hw.attention_map(q, torch.tensor([[[[10.0], [-10.0]]]]))
    carried = carry(made, sample=0, block=1, exact=[0])
    assert made[0, 0, 0].tolist() == [1.0, 0.0]
    assert carried.codes.tolist() == [[[LAST, ZERO]]]
    assert carried.exact[0].tolist() == [[1.0, 0.0]]
    assert carried.hidden == 0.0
