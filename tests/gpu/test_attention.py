"""On a GPU, hw.attention gives the numbers of the definition, for every mask and every rule."""

import pytest
import torch

import headwise as hw
from headwise.testing import assert_within_budget, exact_attention, plain_attention
from tests.cases import DIFFERENT, MASKS, RULES, Shape, dense_mask, rules, tensors

# a shape that the fast kernels take: widths of 64, and more than one of their tiles
LONG = Shape(B=2, Hq=4, Hk=2, Lq=200, Lk=264, D=64, Dv=64)


def on_gpu(given):
    """Rules with their tensors on the GPU."""
    return {name: x.to("cuda") if isinstance(x, torch.Tensor | hw.Mask) else x for name, x in given.items()}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("shape", [DIFFERENT, LONG], ids=["all sizes differ", "long"])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("mask", MASKS)
def test_numbers_are_those_of_the_definition(mask, rule, shape, dtype):
    q, k, v = tensors(shape, dtype)
    given = {name: x for name, x in rules(mask, rule, shape).items() if x is not None}
    plain_rules = {name: given[name] for name in ("attn_bias", "scale", "softcap", "sink") if name in given}
    got = hw.attention(q.cuda(), k.cuda(), v.cuda(), **on_gpu(given))
    assert got.device.type == "cuda"
    plain = plain_attention(q, k, v, allowed=dense_mask(given.get("mask"), shape), **plain_rules)
    assert_within_budget(got.cpu(), exact_attention(q, k, v, **given), plain)


@pytest.mark.parametrize("mask", ["causal", "padding", "an empty row", "lengths, one of them 0"])
def test_gradients_are_those_of_the_definition(mask):
    def gradients(q, k, v, given):
        tensor = [t.requires_grad_() for t in (q, k, v)]
        return torch.autograd.grad(hw.attention(*tensor, **given).sin().sum(), tensor)

    given = rules(mask, "no rule", DIFFERENT)
    exact = gradients(*tensors(DIFFERENT, torch.float64), given)
    plain = gradients(*tensors(), given | {})
    found = gradients(*(t.cuda() for t in tensors()), on_gpu(given))
    for got, wanted, yardstick in zip(found, exact, plain, strict=True):
        assert_within_budget(got.cpu(), wanted, yardstick)
