"""Attention code whose numbers are worked out step by step in the tests, some of it wrong on purpose."""

import math

from torch import nn


class Masked(nn.Module):
    """Right, with a helper, a mask and dropout."""

    def __init__(self, d_model, num_heads):
        super().__init__()
        self.h, self.dk = num_heads, d_model // num_heads
        self.W_q, self.W_k, self.W_v, self.W_o = (nn.Linear(d_model, d_model) for _ in range(4))
        self.drop = nn.Dropout(0.5)

    def split(self, x):
        return x.view(x.size(0), -1, self.h, self.dk).transpose(1, 2)

    def weights(self, q, k, mask):
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.dk)
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -math.inf)
        return self.drop(scores.softmax(dim=-1))

    def merge(self, x):
        return x.transpose(1, 2).reshape(x.size(0), -1, self.h * self.dk)

    def forward(self, query, key, value, mask=None):
        q, k, v = (self.split(one(x)) for one, x in ((self.W_q, query), (self.W_k, key), (self.W_v, value)))
        x = self.weights(q, k, mask) @ v
        return self.W_o(self.merge(x))


class Scrambled(Masked):
    """Merges the heads without bringing them back beside their tokens."""

    def merge(self, x):
        return x.reshape(x.size(0), -1, self.h * self.dk)


class Late(Masked):
    """Masks the weights, after the softmax."""

    def weights(self, q, k, mask):
        weights = (q @ k.transpose(-2, -1) / math.sqrt(self.dk)).softmax(dim=-1)
        return weights if mask is None else weights.masked_fill(mask == 0, 0.0)


class WideHeads(Masked):
    """Takes no head narrower than 4."""

    def __init__(self, d_model, num_heads):
        if d_model // num_heads < 4:
            raise ValueError("heads are too narrow")
        super().__init__(d_model, num_heads)


class InPlace(nn.Module):
    """A softmax written out, in place."""

    def __init__(self, d_model):
        super().__init__()
        self.W = nn.Linear(d_model, d_model)

    def forward(self, x):
        s = self.W(x) @ x.mT
        s /= 2.0
        s[..., 0] = 1.5
        e = s.exp()
        return (e / e.sum(-1, keepdim=True)) @ x


class Breaks(Masked):
    """Fails at its last step, however long its keys are."""

    def merge(self, x):
        return x.transpose(1, 2).reshape(x.size(0), -1, self.h * self.dk + 1)


def through_a_view(x):
    """Changes its argument by way of a part of it."""
    first = x[..., 0]
    first += 1.0
    return x * 2
