"""One byte a weight: at most 4 % off over 28 powers of two, and never a weight where there is none."""

import pytest
import torch

from headwise.pages.weight_codes import EMPTY, FIRST, LAST, MASKED, NAN, ZERO, decoded, encoded, largest_of_blocks

SMALLEST = 2.0**-28


def test_every_weight_down_to_the_smallest_is_at_most_4_percent_off():
    weights = torch.logspace(-28, 0, 200_003, base=2.0, dtype=torch.float64).clamp(SMALLEST, 1.0)
    codes = encoded(weights[None, None], None)
    error = ((decoded(codes)[0, 0].double() - weights) / weights).abs().max()
    assert 0.03 < float(error) < 0.04


def test_one_is_exactly_one_and_larger_weights_have_larger_codes():
    weights = torch.linspace(0, 1, 5_003)
    codes = encoded(weights[None, None], None)[0, 0]
    assert (codes.int().diff() >= 0).all()
    assert (int(codes[0]), int(codes[-1])) == (ZERO, LAST)
    assert float(decoded(codes)[-1]) == 1.0


def test_what_is_no_weight_has_a_code_of_its_own():
    nan = float("nan")
    weights = torch.tensor([[[0.5, 0.0, 1e-12, nan], [0.0, 0.0, 0.0, 0.0], [nan, nan, nan, 0.0]]])
    hidden = torch.tensor([[[False, True, False, False], [True] * 4, [False, False, False, True]]])
    codes = encoded(weights, hidden)[0].tolist()
    assert codes[0][1:] == [MASKED, ZERO, NAN]
    assert codes[1] == [EMPTY] * 4
    assert codes[2] == [NAN, NAN, NAN, MASKED]
    assert FIRST < codes[0][0] < LAST


@pytest.mark.parametrize("block", [2, 3, 7, 40])
@pytest.mark.parametrize("size", [(5, 7), (1, 9), (9, 1), (6, 6)])
def test_a_block_shows_its_largest_weight_or_why_there_is_none(block, size):
    torch.manual_seed(1)
    weights = torch.rand(2, *size)
    hidden = torch.rand(2, *size) < 0.6
    hidden[0, 0] = True
    weights = weights.masked_fill(hidden, 0.0)
    single = encoded(weights, hidden).int()
    rows, columns = min(block, size[0]), min(block, size[1])
    wanted = [
        [
            [int(single[h, i : i + rows, j : j + columns].max()) for j in range(0, size[1], columns)]
            for i in range(0, size[0], rows)
        ]
        for h in range(2)
    ]
    assert encoded(weights, hidden, block).tolist() == wanted
    assert largest_of_blocks(single.to(torch.uint8), block).tolist() == wanted


def test_nan_is_seen_through_every_block():
    weights = torch.rand(1, 6, 6)
    weights[0, 4, 2] = float("nan")
    assert int(encoded(weights, None, 3)[0, 1, 0]) == NAN
