"""Relevance: against the products of whole matrices that its definition names."""

import pytest
import torch
from torch import nn

import headwise as hw
from headwise.errors import ArgumentError


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.attn, self.mix = hw.MultiHeadAttention(width, heads), nn.Linear(width, width)

    def forward(self, x, mask=None):
        return x + self.mix(torch.tanh(self.attn(x, mask=mask)))


class Stack(nn.Module):
    def __init__(self, mask=None):
        super().__init__()
        torch.manual_seed(2)
        self.layers = nn.ModuleList([Layer(12, 2), Layer(12, 3), Layer(12, 4)])
        self.mask = mask

    def forward(self, x):
        for layer in self.layers:
            x = layer(x, self.mask)
        return x


@pytest.mark.parametrize("mask", [None, hw.causal()])
@pytest.mark.parametrize("token", [-1, 0, 4])
def test_it_is_the_product_of_the_definition(mask, token):
    model = Stack(mask).double()
    x = torch.randn(2, 7, 12, dtype=torch.float64)
    with hw.watch(model, gradients=True) as seen:
        out = model(x)
    out[:, token].pow(3).sum().backward()
    R = torch.eye(7, dtype=torch.float64).expand(2, -1, -1)
    for _, m in seen.in_order():
        A = (m.dense().detach() * m.gradient().dense()).clamp(min=0).mean(1)
        R = R + A @ R
    torch.testing.assert_close(hw.relevance(seen, token=token), R[:, token], rtol=0, atol=1e-12)


def test_what_no_gradient_has_reached_is_refused():
    model = Stack()
    x = torch.randn(2, 7, 12)
    with hw.watch(model) as seen:
        model(x)
    with pytest.raises(ArgumentError, match="watch it with gradients=True"):
        hw.relevance(seen, token=0)
    with hw.watch(model, gradients=True) as seen:
        model(x)
    with pytest.raises(ArgumentError, match="no gradient has reached this call"):
        hw.relevance(seen, token=0)
    with pytest.raises(ArgumentError, match=r"token must lie in -7\.\.6, as there are L=7 tokens; got 7"):
        hw.relevance(seen, token=7)
