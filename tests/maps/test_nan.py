"""A row that is NaN is NaN where it may attend, and nowhere else."""

import pytest
import torch

import headwise as hw


@pytest.mark.parametrize("broken", ["query", "key"])
def test_a_row_of_nan_gives_nothing_to_the_keys_that_it_may_not_attend_to(broken):
    q, k = torch.randn(1, 2, 6, 4), torch.randn(1, 2, 6, 4)
    (q if broken == "query" else k)[0, 0, 3, 0] = float("nan")
    m = hw.attention_map(q, k, mask=hw.causal() & hw.lengths(torch.tensor([[1, 2, 3, 4, 3, 3]])))
    sums = m.dense().sum(-2)
    assert torch.equal(m.received().isnan(), sums.isnan())
    assert sums[0, 0].isnan().tolist() == [True] * 4 + [False] * 2
    torch.testing.assert_close(m.received(), sums, equal_nan=True)
