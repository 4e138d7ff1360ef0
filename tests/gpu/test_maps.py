"""On a GPU, every reading of a map is that of the definition, and none takes more memory than its tiles."""

import pytest
import torch

import headwise as hw
from headwise.ops.reference import attention_weights
from headwise.testing import assert_within_budget
from tests.cases import RULES, Shape, rules, tensors
from tests.gpu.test_attention import on_gpu

LONG = Shape(B=2, Hq=4, Hk=2, Lq=200, Lk=264, D=64, Dv=64)


def entropy(weights):
    return -torch.special.xlogy(weights, weights).sum(-1)


READINGS = {
    "dense": (lambda m: m.dense(), lambda w: w),
    "a row": (lambda m: m[1, 3, 17], lambda w: w[1, 3, 17]),
    "a tile": (lambda m: m[:, 1, 5:9, ::3], lambda w: w[:, 1, 5:9, ::3]),
    "entropy": (lambda m: m.entropy(), entropy),
    "received": (lambda m: m.received(), lambda w: w.sum(-2)),
    "top 3": (lambda m: m.topk(3)[0], lambda w: w.topk(3).values),
    "pooled": (lambda m: m.pooled(7, 9), lambda w: torch.nn.functional.adaptive_avg_pool2d(w, (7, 9))),
    "mean of heads": (lambda m: m.mean_heads().dense(), lambda w: w.mean(1, keepdim=True)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("mask", ["no mask", "causal", "padding and causal", "documents", "dense, a head each"])
@pytest.mark.parametrize("name", READINGS)
def test_a_reading_is_that_of_the_definition(name, mask, rule, dtype):
    of_map, of_weights = READINGS[name]
    q, k, _ = tensors(LONG, dtype)
    given = {key: x for key, x in rules(mask, rule, LONG).items() if x is not None}
    got = of_map(hw.attention_map(q.cuda(), k.cuda(), **on_gpu(given)))
    exact = of_weights(attention_weights(q.double(), k.double(), **given))
    plain = of_weights(attention_weights(q, k, **given))
    # an entropy is summed in another order than the definition's
    assert_within_budget(got.cpu(), exact, plain, factor=4.0)


def test_memory_is_that_of_tiles_and_not_of_the_map():
    q, k = (torch.randn(1, 12, 32768, 64, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    m = hw.attention_map(q, k)
    kept = m.lse, m.entropy(), m.received(), m.topk(8), m.pooled(512, 512)
    extra = torch.cuda.max_memory_allocated() - before
    assert kept[0].isfinite().all()
    # the dense map takes 51 GB
    assert extra <= 1 << 30, f"{extra / 2**20:.0f} MiB"


def test_a_loss_on_the_entropy_trains_in_little_memory():
    q, k = (torch.randn(1, 8, 8192, 64, device="cuda", requires_grad=True) for _ in range(2))
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    hw.attention_map(q, k).entropy().mean().backward()
    extra = torch.cuda.max_memory_allocated() - before
    assert q.grad.isfinite().all()
    assert k.grad.isfinite().all()
    assert extra <= 500 << 20, f"{extra / 2**20:.0f} MiB"
