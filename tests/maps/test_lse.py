"""An lse is read in whatever convention a kernel gave it, and one that does not fit shows."""

import math

import pytest
import torch

import headwise as hw
from headwise.errors import ArgumentError, ShapeError
from headwise.maps import attention_map, natural_lse
from headwise.testing import assert_within_budget
from tests.cases import DIFFERENT, MASKS, rules
from tests.maps.oracle import OF_WEIGHTS, Dense, doubled, inputs, made

# a fit is only rounding, and a misfit is far above it
ROUNDING = torch.finfo(torch.float32).eps * 64


@pytest.mark.parametrize("empty", [0.0, float("inf"), -float("inf"), 1e30])
@pytest.mark.parametrize("sink", [None, torch.arange(6.0)])
@pytest.mark.parametrize("mask", ["an empty row", "lengths, one of them 0", "dense, shared by keys"])
def test_what_a_kernel_says_of_an_empty_row_does_not_matter(mask, sink, empty):
    given = inputs(mask=MASKS[mask](DIFFERENT), sink=sink)
    computed = made(given)
    nothing = computed.lse.isneginf() if sink is None else computed[:].sum(-1) == 0
    assert bool(nothing.any())
    told = attention_map(**given, lse=computed.lse.masked_fill(nothing, empty))
    assert torch.equal(told.lse, computed.lse)
    assert torch.equal(told.received(), attention_map(**given, lse=computed.lse).received())
    assert told.check() < ROUNDING


def test_a_row_closed_by_its_bias_is_empty_too():
    bias = torch.zeros(5, 7)
    bias[3] = float("-inf")
    computed = attention_map(**inputs(attn_bias=bias))
    told = attention_map(**inputs(attn_bias=bias), lse=computed.lse.masked_fill(computed.lse.isneginf(), 0.0))
    assert bool(told.lse[:, :, 3].isneginf().all())
    assert torch.equal(told.lse, computed.lse)


def test_a_pair_closed_by_its_bias_alone_is_closed_beside_a_mask():
    allowed, by_bias = torch.rand(2, 2, 6, 5, 7) > 0.3
    bias = torch.zeros(2, 6, 5, 7).masked_fill(~by_bias, float("-inf"))
    both, one = made(inputs(mask=allowed, attn_bias=bias)), made(inputs(mask=allowed & by_bias))
    for got, want in ((both.lse, one.lse), (both.entropy(), one.entropy()), (both.received(), one.received())):
        assert torch.equal(got, want)


def test_the_lse_of_torchs_own_kernel_fits():
    q, k, v = (torch.randn(2, 6, n, 16) for n in (5, 7, 7))
    mask = MASKS["an empty row"](DIFFERENT)
    bias = torch.zeros(5, 7).masked_fill(~mask, float("-inf"))
    _, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, attn_mask=bias)
    m = attention_map(q, k, mask=mask, lse=lse)
    assert m.check() < ROUNDING
    case = {"q": q, "k": k, "mask": mask}
    exact, plain = Dense(**doubled(case)), Dense(**case)
    assert_within_budget(m[..., 3], exact.weights[..., 3], plain.weights_by_lse[..., 3])
    assert_within_budget(m.received(), exact.weights.sum(-2), plain.weights_by_lse.sum(-2))


@pytest.mark.parametrize("mask", ["no mask", "padding and causal", "an empty row", "dense, a head each"])
@pytest.mark.parametrize("rule", ["no rule", "all of them"])
def test_check_is_small_where_the_lse_fits_and_large_where_it_does_not(mask, rule):
    given = inputs(**rules(mask, rule, DIFFERENT))
    m = made(given)
    assert m.check() < ROUNDING
    filled = m.lse.nan_to_num(neginf=0.0)
    misfits = {
        "base 2": filled / math.log(2),
        "another call": filled.roll(1, dims=2),
        "one head wrong": filled + torch.eye(6)[4][:, None],
    }
    if "sink" in given:
        misfits["without the sink"] = made({**given, "sink": torch.full((6,), -1e4)}).lse.nan_to_num(neginf=0.0)
    for name, lse in misfits.items():
        assert attention_map(**given, lse=lse).check() > 100 * ROUNDING, name


def test_an_lse_of_another_base_becomes_natural():
    given = inputs(mask=hw.causal())
    lse = made(given).lse
    for base in (2, 10.0):
        assert attention_map(**given, lse=natural_lse(lse / math.log(base), base=base)).check() < ROUNDING
    for base in (1, 0, -2.0, float("inf")):
        with pytest.raises(ArgumentError, match=f"got {base}"):
            natural_lse(lse, base=base)


def test_an_lse_of_infinity_on_a_row_with_keys_is_shown_as_nan():
    lse = made(inputs()).lse
    lse[0, 1, 2] = float("inf")
    m = attention_map(**inputs(), lse=lse)
    assert m.lse.isnan().nonzero().tolist() == [[0, 1, 2]]
    assert m[..., 3].isnan().nonzero().tolist() == [[0, 1, 2]]
    assert math.isnan(m.check())


def test_what_is_read_of_whole_rows_does_not_depend_on_the_lse_that_was_given():
    lse = made(inputs()).lse
    told = attention_map(**inputs(), lse=lse + 1.0)
    for name in ("entropy", "received", "distance", "largest", "picture"):
        read = OF_WEIGHTS[name][0]
        assert torch.equal(read(told), read(made(inputs()))), name
    assert torch.equal(told.lse, lse + 1.0)


@pytest.mark.parametrize("shape", [(2, 6, 8), (2, 5, 6), (2, 6, 5, 1), (6, 5)])
def test_an_lse_of_another_shape_is_refused(shape):
    with pytest.raises(ShapeError, match=rf"\(B=2, Hq=6, Lq=5\).*came as \({', '.join(map(str, shape))}\)"):
        attention_map(**inputs(), lse=torch.zeros(shape))


def test_an_lse_of_integers_or_elsewhere_is_refused():
    with pytest.raises(ArgumentError, match=r"torch.int64 on cpu"):
        attention_map(**inputs(), lse=torch.zeros(2, 6, 5, dtype=torch.int64))
    with pytest.raises(ArgumentError, match=r"torch.float32 on meta"):
        attention_map(**inputs(), lse=torch.zeros(2, 6, 5, device="meta"))


def test_an_lse_in_half_precision_is_read_in_the_dtype_of_the_map():
    lse = made(inputs()).lse
    m = attention_map(**inputs(), lse=lse.bfloat16())
    assert m.lse.dtype is torch.float32
    assert torch.equal(m.lse, lse.bfloat16().float())
