"""FlexAttention is asked what the mask says, and its own functions come in as they are."""

import pytest
import torch
from hypothesis import given, settings
from torch.nn.attention.flex_attention import create_block_mask, create_mask

import headwise as hw
from headwise import masks
from headwise.errors import MaskError
from tests.masks.trees import build, checkers, dense, scenes


@settings(max_examples=60)
@given(scenes())
def test_the_mask_mod_gives_flex_exactly_what_the_mask_allows(scene):
    s, tree = scene
    mask = build(tree)
    mask_mod = masks.to_flex(mask, s.Lq, s.Lk, batch=s.B, heads=s.H)
    assert torch.equal(create_mask(mask_mod, s.B, s.H, s.Lq, s.Lk, device="cpu"), dense(mask, s))


@settings(max_examples=30)
@given(scenes())
def test_a_block_mask_computes_every_block_that_the_tiles_do_not_call_empty(scene):
    s, tree = scene
    mask = build(tree)
    mask_mod = masks.to_flex(mask, s.Lq, s.Lk, batch=s.B, heads=s.H)
    blocks = create_block_mask(mask_mod, s.B, s.H, s.Lq, s.Lk, device="cpu", BLOCK_SIZE=(2, 4)).to_dense() > 0
    some = torch.nn.functional.max_pool2d(dense(mask, s).float(), (2, 4), ceil_mode=True) > 0
    assert torch.equal(blocks, some)
    assert not (blocks & (mask.tiles(s.Lq, s.Lk, block=(2, 4), batch=s.B, heads=s.H) == 0)).any()


@pytest.mark.parametrize(("Lq", "Lk"), [(5, 7), (7, 5), (1, 4)])
def test_a_mask_mod_is_asked_by_rows_as_flex_asks_it(Lq, Lk):
    def mask_mod(b, h, q_idx, kv_idx):
        return (q_idx >= kv_idx) | checkers(b, h, q_idx, kv_idx)

    mask = masks.from_flex(mask_mod)
    wanted = create_mask(mask_mod, 2, 6, Lq, Lk, device="cpu")
    assert torch.equal(mask.allowed(Lq, Lk, batch=2, heads=6), wanted)
    assert torch.equal(create_mask(masks.to_flex(mask, Lq, Lk), 2, 6, Lq, Lk, device="cpu"), wanted)


def test_a_mask_that_does_not_fit_is_refused_before_flex_sees_it():
    with pytest.raises(MaskError, match=r"keys\(keep\) must be \(B=2, Lk=7\), but came as \(2, 3\)"):
        masks.to_flex(hw.keys(torch.ones(2, 3, dtype=torch.bool)), 5, 7)


def test_a_block_mask_is_not_a_mask_mod():
    block_mask = create_block_mask(checkers, 1, 1, 4, 4, device="cpu")
    with pytest.raises(MaskError, match="but BlockMask came: of a BlockMask give its mask_mod"):
        masks.from_flex(block_mask)
