"""The two masks of nn.MultiheadAttention, and back."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import headwise as hw
from headwise import masks
from headwise.errors import MaskError
from tests.masks.trees import Shape, build, dense, scenes
from tests.sizes import SIZES

B, H, Lq, Lk = (SIZES[axis] for axis in ("B", "Hq", "Lq", "Lk"))


@given(scenes())
def test_blocked_and_back_allows_the_same(scene):
    s, tree = scene
    mask = build(tree)
    both = masks.to_blocked(mask, s.Lq, s.Lk, num_heads=s.H, batch=s.B)
    assert torch.equal(dense(masks.from_blocked(**both, num_heads=s.H), s), dense(mask, s))


@given(scenes())
def test_torch_reads_the_blocked_masks_as_the_mask_means_them(scene):
    s, tree = scene
    # torch gives NaN to a query that sees nothing, so everyone sees the first key
    mask = build(tree) | hw.prefix(1)
    layer = nn.MultiheadAttention(s.H * 2, s.H, batch_first=True, dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    query, key = (torch.randn(s.B, L, s.H * 2, generator=generator, dtype=torch.float64) for L in (s.Lq, s.Lk))
    both = masks.to_blocked(mask, s.Lq, s.Lk, num_heads=s.H, batch=s.B)
    _, weights = layer(query, key, key, average_attn_weights=False, **both)
    assert torch.equal(weights > 0, dense(mask, s))


def test_padding_goes_into_its_own_mask_and_the_rest_stays_small():
    keep = torch.tensor([[True, True, False], [True, True, True]])
    both = masks.to_blocked(hw.causal() & hw.keys(keep) & hw.prefix(2), 4, 3, num_heads=H)
    assert both["attn_mask"].shape == (4, 3)
    assert both["key_padding_mask"].tolist() == [[False, False, True]] * 2
    assert masks.to_blocked(hw.causal(), 4, 3, num_heads=H, batch=B)["key_padding_mask"] is None
    assert masks.to_blocked(hw.prefix(2), 4, 3, num_heads=H, batch=B)["attn_mask"] is None
    per_sample = masks.to_blocked(hw.causal() | hw.keys(keep), 4, 3, num_heads=H)
    assert per_sample["attn_mask"].shape == (B * H, 4, 3)


def test_the_heads_of_a_sample_are_side_by_side():
    attn_mask = torch.rand(B * H, Lq, Lk, generator=torch.Generator().manual_seed(0)) < 0.5
    allowed = dense(masks.from_blocked(attn_mask, num_heads=H), Shape())
    assert all(torch.equal(allowed[b, h], ~attn_mask[b * H + h]) for b in range(B) for h in range(H))


@given(st.lists(st.booleans(), min_size=Lk, max_size=Lk))
def test_the_padding_of_one_sample_may_come_without_its_axis(blocked):
    padding = torch.tensor(blocked)
    assert masks.from_blocked(key_padding_mask=padding) == hw.keys(~padding[None])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"attn_mask": torch.zeros(Lq, Lk)}, "attn_mask must be bool, True = blocked, but torch.float32 came"),
        (
            {"key_padding_mask": torch.zeros(B, Lk, dtype=torch.uint8)},
            "key_padding_mask must be bool, True = blocked, but torch.uint8 came",
        ),
        ({"attn_mask": torch.zeros(12, Lq, Lk).bool()}, r"came as \(12, 5, 7\) with num_heads=None"),
        ({"attn_mask": torch.zeros(12, Lq, Lk).bool(), "num_heads": 5}, r"num_heads=5 must divide .* B\*H=12"),
        ({"attn_mask": torch.zeros(12, Lq, Lk).bool(), "num_heads": 0}, r"num_heads=0 must divide .* B\*H=12"),
        ({"attn_mask": torch.zeros(B, H, Lq, Lk).bool(), "num_heads": H}, r"came as \(2, 6, 5, 7\)"),
        (
            {"key_padding_mask": torch.zeros(B, Lq, Lk).bool()},
            r"keys\(keep\) must be \(B, Lk\), but came as \(2, 5, 7\)",
        ),
        ({}, "needs attn_mask, key_padding_mask or both"),
    ],
)
def test_masks_that_torch_would_not_take_so_are_refused(arguments, sentence):
    with pytest.raises(MaskError, match=sentence):
        masks.from_blocked(**arguments)


def test_a_mask_that_does_not_fit_is_refused():
    with pytest.raises(MaskError, match=r"keys\(keep\) must be \(B=2, Lk=7\), but came as \(2, 3\)"):
        masks.to_blocked(hw.keys(torch.ones(B, 3, dtype=torch.bool)), Lq, Lk, num_heads=H)
