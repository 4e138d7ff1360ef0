"""Attention to keys that stand in several tensors is that to the same keys in one."""

import itertools
import math

import pytest
import torch

import headwise as hw
from headwise.ops import blockwise
from headwise.ops.call import Call
from headwise.ops.segmented import SegmentedCall
from headwise.ops.segments import Segments
from headwise.ops.strips import Bounds, strips
from headwise.ops.workspace import Gradients
from headwise.testing import assert_within_budget, exact_attention, plain_attention

B, HQ, HK, D = 2, 6, 3, 11
# rows, columns and where these are cut; from 512 rows on a causal mask is two strips
SIZES = {"short": (29, 37, (5, 6, 30)), "long": (523, 1201, (300, 1000)), "whole": (31, 31, ())}
MASKS = {
    "no mask": None,
    "causal": hw.causal(),
    "window": hw.window(before=150, after=3),
    "nothing for some": hw.causal() & hw.window(before=2) & hw.keys(torch.arange(31)[None] > 9),
}


def tensors(Lq: int, Lk: int, *, scale: float = 1.0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(Lk)
    return [scale * torch.randn(B, H, L, D, generator=generator) for H, L in ((HQ, Lq), (HK, Lk), (HK, Lk), (HQ, Lq))]


def cut(t: torch.Tensor, bounds: tuple[int, ...], *, is_fresh: bool = False) -> Segments:
    """t in several tensors, every other one of which is a view of a larger one."""
    parts = [t[:, :, a:b] for a, b in itertools.pairwise((0, *bounds, t.shape[2]))]
    return Segments(tuple(p.clone() if n % 2 else p for n, p in enumerate(parts)), is_fresh)


@pytest.mark.parametrize("scale", [1.0, 2.5])
@pytest.mark.parametrize(
    ("mask", "sizes"), [(m, s) for m in MASKS for s in SIZES if m != "nothing for some" or s == "whole"]
)
def test_segments_give_the_numbers_of_one_tensor(mask, sizes, scale):
    Lq, Lk, bounds = SIZES[sizes]
    q, k, v, gradient = tensors(Lq, Lk, scale=scale)
    given = [t.clone().requires_grad_() for t in (q, k, v)]
    # of large scores the kernel is further off than plain PyTorch, of one tensor as of several
    whole = hw.attention(*given, mask=MASKS[mask], backend="blockwise")
    whole.backward(gradient)
    wide = [t.double().requires_grad_() for t in (q, k, v)]
    exact = exact_attention(*wide, mask=MASKS[mask])
    exact.backward(gradient.double())
    at = SegmentedCall(q, cut(k, bounds), cut(v, bounds), MASKS[mask], None)
    out, lse = torch.full_like(q, math.nan), torch.full(q.shape[:3], math.nan)
    at.forward(out, lse)
    assert_within_budget(out, exact.detach(), whole.detach())
    is_fresh = at.splits_columns(lse)
    sums = {name: cut(torch.full_like(k, math.nan if is_fresh else 0.0), bounds, is_fresh=is_fresh) for name in "kv"}
    of_q = torch.full_like(q, math.nan)
    at.backward(gradient, (out, lse), Gradients(of_q, **sums))
    found = (of_q, *(torch.cat(sums[name].parts, 2) for name in "kv"))
    for t, wanted, one in zip(found, wide, given, strict=True):
        assert_within_budget(t, wanted.grad, one.grad)


def test_each_column_of_a_causal_square_and_what_is_before_it_is_in_one_strip():
    sizes = Call(*tensors(523, 1201)[:3]).sizes
    bounds = blockwise.FUSED._replace(spare=0)
    assert strips(hw.causal(), sizes, 2, bounds, has_squares=True).splits_columns(sizes, 2)
    assert not strips(hw.window(before=150), sizes, 2, bounds).splits_columns(sizes, 2)
    # some of the query heads of a key/value head
    assert not strips(None, sizes, 2, Bounds(1201 * 128, rows=128)).splits_columns(sizes, 2)


@pytest.mark.parametrize("mask", [None, hw.causal(), hw.window(before=40), hw.causal() & hw.lengths([0, 20])])
def test_gradients_that_are_written_first_are_those_that_are_added_to_zeros(mask):
    q, k, v, gradient = tensors(61, 61)
    call = Call(q, k, v, mask)
    _, made = blockwise.forward(call, None, with_lse=True)
    found = blockwise.backward(call, None, gradient, ["q", "k", "v"], outputs=made)
    given = [t.clone().requires_grad_() for t in (q, k, v)]
    wide = [t.double().requires_grad_() for t in (q, k, v)]
    allowed = None if mask is None else mask.allowed(61, 61, batch=B)
    plain_attention(*given, allowed=allowed).backward(gradient)
    exact_attention(*wide, mask=mask).backward(gradient.double())
    for name, exact, plain in zip("qkv", wide, given, strict=True):
        assert_within_budget(found[name], exact.grad, plain.grad)
