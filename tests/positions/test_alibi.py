"""ALiBi: slopes as in the paper, a bias exact at any distance."""

import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headwise.errors import ArgumentError
from headwise.positions import Alibi, alibi_slopes

heads = st.integers(1, 130)
places = st.lists(st.integers(-1_000_000, 1_000_000), min_size=3, max_size=3).map(torch.tensor)


def test_eight_heads_have_the_papers_slopes():
    assert alibi_slopes(8) == tuple(1 / 2**h for h in range(1, 9))


def test_twelve_heads_take_every_other_slope_of_sixteen():
    assert alibi_slopes(12) == (*alibi_slopes(8), *alibi_slopes(16)[:8:2])


@given(heads)
def test_slopes_are_all_different_and_between_nothing_and_one(num_heads):
    slopes = alibi_slopes(num_heads)
    assert len(set(slopes)) == len(slopes) == num_heads
    assert all(0 < slope < 1 for slope in slopes)


@given(heads, places, places)
def test_the_bias_is_slope_times_distance_rounded_as_float32(num_heads, i, j):
    bias = Alibi().build(num_heads)(i, j)
    slopes = torch.tensor(alibi_slopes(num_heads), dtype=torch.float64).float().double()
    exact = -slopes[:, None, None] * (i[:, None] - j).abs().double()
    assert (bias.dtype, bias.shape) == (torch.float32, (1, num_heads, 3, 3))
    # both factors are exact in float32, so that one rounding is all there is
    assert torch.equal(bias[0], exact.float())


@given(places, places, places)
def test_a_row_of_positions_for_each_sample_gives_each_its_bias(first, second, j):
    alibi = Alibi().build(5)
    together = alibi(torch.stack((first, second)), j)
    assert torch.equal(together, torch.cat((alibi(first, j), alibi(second, j))))


def test_a_key_at_the_querys_place_has_plain_zero():
    assert not Alibi().build(2)(torch.tensor([7]), torch.tensor([7])).signbit().any()


def test_no_heads_are_refused():
    with pytest.raises(ArgumentError, match="num_heads=0"):
        Alibi().build(0)


def test_the_spec_pastes_back_pickles_and_compares():
    assert eval(repr(Alibi())) == Alibi() == pickle.loads(pickle.dumps(Alibi()))
