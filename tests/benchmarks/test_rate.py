"""The rate of torch's products, and what the products of attention count."""

from types import SimpleNamespace

import pytest
import torch

from benchmarks import rate
from benchmarks.rate import attention_flops, matmul_rate


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_rate_is_positive_and_finite(dtype):
    assert 0 < matmul_rate(dtype, side=64) < float("inf")


def test_the_rate_is_that_of_the_median_time(monkeypatch):
    # three products that take 2, 5 and 3 seconds
    ticks = iter([0.0, 2.0, 10.0, 15.0, 20.0, 23.0])
    monkeypatch.setattr(rate, "time", SimpleNamespace(perf_counter=lambda: next(ticks)))
    assert matmul_rate(torch.float32, side=6) == 2 * 6**3 / 3


def test_a_product_is_grown_until_the_next_one_would_take_long(monkeypatch):
    sides = []
    monkeypatch.setattr(rate, "_seconds", lambda dtype, side: sides.append(side) or side**3 / 1e9)
    assert matmul_rate(torch.float32) == pytest.approx(2e9)
    # of 512, 0.13 s: one of 1,024 would take 1.07
    assert sides == [256, 512]


def test_attention_counts_two_operations_for_each_number_it_multiplies():
    # 3 pairs in 2 heads of size 5: q·k and weight·v each multiply and add 5 numbers
    forward = 3 * 2 * (2 * 5 + 2 * 5)
    assert attention_flops(pairs=3, heads=2, D=5, has_backward=False) == forward == 120
    # backward: q·k again, dv = weights·dout, dweights = dout·v, dq = dscores·k, dk = dscores·q
    assert attention_flops(pairs=3, heads=2, D=5, has_backward=True) == forward + 5 * 3 * 2 * 2 * 5 == 420
