"""Recorded calls change nothing and give the weights that were used."""

import pytest
import torch

import headwise as hw
from headwise.watching.calls import RecordedCalls
from tests.sizes import SIZES


def inputs():
    B, Hq, Hk, Lq, Lk, D, Dv = (SIZES[name] for name in ("B", "Hq", "Hk", "Lq", "Lk", "D", "Dv"))
    make = torch.Generator().manual_seed(3)
    return [torch.randn(B, *sizes, generator=make) for sizes in ((Hq, Lq, D), (Hk, Lk, D), (Hk, Lk, Dv))]


RULES = {
    "plain": {},
    "mask": {"mask": hw.causal()},
    "bias": {"attn_bias": torch.linspace(-1, 1, 35).reshape(5, 7)},
    "scale": {"scale": 0.7},
    "softcap": {"softcap": 3.0},
    "sink": {"sink": torch.linspace(-1, 2, 6)},
    "all": {"mask": hw.window(keys=3), "scale": 0.7, "softcap": 3.0, "sink": torch.linspace(-1, 2, 6)},
}


@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
def test_the_output_is_bit_equal_and_the_weights_give_it(rules):
    q, k, v = inputs()
    unwatched = hw.attention(q, k, v, **rules)
    with RecordedCalls() as seen:
        watched = hw.attention(q, k, v, **rules)
    assert torch.equal(watched, unwatched)
    (call,) = seen.calls
    values = v.repeat_interleave(SIZES["Hq"] // SIZES["Hk"], dim=1)
    torch.testing.assert_close(call.weights() @ values, unwatched)


def test_a_layer_gives_one_call_for_each_time_it_ran_in_order():
    layer = hw.MultiHeadAttention(12, 3).eval()
    x = torch.randn(2, 5, 12)
    with RecordedCalls() as seen:
        first, second = layer(x), layer(x[:, :4])
    assert torch.equal(first, layer(x))
    assert torch.equal(second, layer(x[:, :4]))
    assert [tuple(call.weights().shape) for call in seen.calls] == [(2, 3, 5, 5), (2, 3, 4, 4)]


def test_nothing_is_recorded_before_and_after_the_block():
    q, k, v = inputs()
    hw.attention(q, k, v)
    with RecordedCalls() as seen:
        torch.softmax(q, dim=-1)
    hw.attention(q, k, v)
    assert seen.calls == []


def test_gradients_pass_and_are_bit_equal():
    def gradient(watched: bool) -> torch.Tensor:
        q, k, v = (tensor.requires_grad_() for tensor in inputs())
        with RecordedCalls() if watched else torch.enable_grad():
            hw.attention(q, k, v).square().sum().backward()
        return q.grad

    assert torch.equal(gradient(True), gradient(False))


def test_a_recorded_call_holds_no_graph():
    q, k, v = (tensor.requires_grad_() for tensor in inputs())
    with RecordedCalls() as seen:
        hw.attention(q * 2, k * 2, v)
    assert not seen.calls[0].weights().requires_grad


def test_weights_are_those_before_dropout():
    q, k, v = inputs()
    with RecordedCalls() as seen:
        hw.attention(q, k, v, dropout=0.9)
    torch.testing.assert_close(seen.calls[0].weights().sum(dim=-1), torch.ones(2, 6, 5))


def test_q_and_k_given_by_name_are_recorded_too():
    q, k, v = inputs()
    with RecordedCalls() as seen:
        hw.attention(q=q, k=k, v=v)
    assert torch.equal(seen.calls[0].q, q)
