"""Values that share memory with rotated keys: they are rotated only where what is read of them is."""

import pytest

from tests.diagnosis.written import blamed_in

SOURCE = """
import torch
from torch import nn


class OneHeadOfKeys(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.width = heads, dim // heads
        self.q = nn.Linear(dim, dim, bias=False)
        self.kv = nn.Linear(dim, 2 * self.width, bias=False)
        self.out = nn.Linear(dim, dim, bias=False)
        steps = 100.0 ** (-torch.arange(0, self.width, 2).float() / self.width)
        angles = torch.outer(torch.arange(64).float(), steps)
        self.register_buffer("turns", torch.polar(torch.ones_like(angles), angles))

    def turned(self, t, turns):
        pairs = torch.view_as_complex(t.reshape(*t.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * turns).flatten(-2)

    def forward(self, x):
        B, T, D = x.shape
        q = self.turned(self.q(x).view(B, T, self.heads, self.width), self.turns[:T, None]).transpose(1, 2)
        k, v = self.kv(x).split(self.width, dim=-1)
        both = torch.zeros(2, B, T, self.width)
        both[0] = self.turned(k, self.turns[:T])
        both[1] = {values}
        keys, values = both
        hidden = torch.ones(T, T, dtype=torch.bool).triu(1)
        scores = (q @ keys.mT[:, None] * self.width**-0.5).masked_fill(hidden, float("-inf"))
        y = scores.softmax(-1) @ values[:, None]
        return self.out(y.transpose(1, 2).reshape(B, T, D))
"""


@pytest.mark.parametrize(("values", "is_wrong"), [("v", False), ("self.turned(v, self.turns[:T])", True)])
def test_values_in_one_buffer_with_keys_are_rotated_where_they_are_turned(values, is_wrong):
    found = blamed_in(SOURCE.replace("{values}", values), "OneHeadOfKeys")
    assert [kind for kind, *_ in found] == (["rotary-on-values"] if is_wrong else [])
