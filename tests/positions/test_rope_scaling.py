"""Scalings of rotary embeddings: what they promise at both ends, and what they refuse."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwise.errors import ArgumentError
from headwise.positions import LinearScaling, Llama3Scaling, NTKScaling, YarnScaling
from headwise.positions.rope_scaling import plain_frequencies

DIM, BASE, LENGTH = 64, 10000.0, 4096
PLAIN = plain_frequencies(base=BASE, dim=DIM)

factors = st.floats(1.0, 64.0)


def turns(frequency: float) -> float:
    """How often a pair turns within LENGTH positions."""
    return LENGTH * frequency / (2 * math.pi)


def test_plain_frequencies_are_a_geometric_row_from_one():
    assert plain_frequencies(base=100.0, dim=6) == (1.0, 100.0 ** (-1 / 3), 100.0 ** (-2 / 3))


@given(factors)
def test_linear_scaling_divides_every_frequency(factor):
    scaled = LinearScaling(factor).frequencies(base=BASE, dim=DIM)
    assert scaled == tuple(frequency / factor for frequency in PLAIN)


@given(factors)
def test_ntk_scaling_keeps_the_first_pair_and_divides_the_last(factor):
    scaled = NTKScaling(factor).frequencies(base=BASE, dim=DIM)
    assert scaled[0] == 1.0
    assert math.isclose(scaled[-1], PLAIN[-1] / factor)
    assert all(PLAIN[i] / factor < scaled[i] <= PLAIN[i] or factor == 1.0 for i in range(1, DIM // 2 - 1))


@pytest.mark.parametrize(
    ("scaling", "slow", "fast"),
    [
        (YarnScaling(8.0, LENGTH), 1.0, 32.0),
        (YarnScaling(8.0, LENGTH, beta_fast=20.0, beta_slow=3.0), 3.0, 20.0),
        (Llama3Scaling(8.0, 1.0, 4.0, LENGTH), 1.0, 4.0),
    ],
    ids=["yarn", "yarn, other betas", "llama3"],
)
def test_pairs_that_turn_often_are_kept_and_those_that_turn_seldom_divided(scaling, slow, fast):
    scaled = scaling.frequencies(base=BASE, dim=DIM)
    share = [after / before for after, before in zip(scaled, PLAIN, strict=True)]
    # the ramp of YaRN ends on whole pairs, one further out at most
    kept = [share[i] for i in range(DIM // 2 - 1) if turns(PLAIN[i + 1]) > fast]
    divided = [share[i] for i in range(1, DIM // 2) if turns(PLAIN[i - 1]) < slow]
    between = share[len(kept) + 2 : DIM // 2 - len(divided) - 2]
    assert kept == [1.0] * len(kept)
    assert divided == pytest.approx([1 / 8] * len(divided))
    assert min(len(kept), len(divided), len(between)) >= 1
    assert all(1 / 8 < s < 1 for s in between)
    assert share == sorted(share, reverse=True)


@pytest.mark.parametrize("scaling", [LinearScaling, NTKScaling, lambda f: YarnScaling(f, LENGTH)])
def test_a_factor_of_one_changes_nothing(scaling):
    assert scaling(1.0).frequencies(base=BASE, dim=DIM) == PLAIN
    assert scaling(1.0).amplitude == 1.0


def test_llama3_with_a_factor_of_one_changes_nothing():
    assert Llama3Scaling(1.0, 1.0, 4.0, LENGTH).frequencies(base=BASE, dim=DIM) == pytest.approx(PLAIN, rel=1e-15)


def test_yarn_makes_the_scores_sharper_as_the_paper_does_or_as_told():
    assert YarnScaling(math.e**2, LENGTH).amplitude == pytest.approx(1.2)
    assert YarnScaling(16.0, LENGTH, attention_factor=1.5).amplitude == 1.5
    assert {LinearScaling(2.0).amplitude, NTKScaling(2.0).amplitude, Llama3Scaling(8.0, 1.0, 4.0, 9).amplitude} == {1.0}


@given(st.integers(1, 10_000), st.sampled_from([2, 4, 64]), factors)
def test_yarn_stays_between_the_plain_and_the_divided_frequencies_at_any_length(length, dim, factor):
    plain = plain_frequencies(base=BASE, dim=dim)
    scaled = YarnScaling(factor, length).frequencies(base=BASE, dim=dim)
    tiny = 1 + 1e-15
    assert all(b / factor / tiny <= a <= b * tiny for a, b in zip(scaled, plain, strict=True))


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: LinearScaling(0.5), "LinearScaling needs factor >= 1, got 0.5"),
        (lambda: NTKScaling(0.25), "NTKScaling needs factor >= 1, got 0.25"),
        (lambda: YarnScaling(float("nan"), 64), "YarnScaling needs factor >= 1, got nan"),
        (lambda: Llama3Scaling(float("inf"), 1.0, 4.0, 64), "Llama3Scaling needs factor >= 1, got inf"),
        (lambda: YarnScaling(4.0, 0), "YarnScaling needs original_length >= 1, got 0"),
        (lambda: Llama3Scaling(4.0, 1.0, 4.0, -7), "Llama3Scaling needs original_length >= 1, got -7"),
        (lambda: YarnScaling(4.0, 64, beta_fast=2.0, beta_slow=3.0), "beta_slow=3.0 and beta_fast=2.0"),
        (lambda: YarnScaling(4.0, 64, beta_slow=0.0), "beta_slow=0.0 and beta_fast=32.0"),
        (lambda: YarnScaling(4.0, 64, attention_factor=-1.0), "attention_factor > 0, got -1.0"),
        (lambda: Llama3Scaling(4.0, 4.0, 2.0, 64), "< high_frequency_factor, got 4.0 and 2.0"),
        (lambda: Llama3Scaling(4.0, 0.0, 2.0, 64), "< high_frequency_factor, got 0.0 and 2.0"),
        (lambda: NTKScaling(4.0).frequencies(base=BASE, dim=2), "dim >= 4, but dim=2"),
        (lambda: YarnScaling(4.0, 64).frequencies(base=1.0, dim=8), "base > 1, got base=1.0"),
    ],
)
def test_numbers_out_of_range_are_refused(make, sentence):
    with pytest.raises(ArgumentError, match=sentence):
        make()
