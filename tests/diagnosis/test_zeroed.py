"""Scores of later keys that are made 0, and dropout beside another fault of one call."""

from __future__ import annotations

import pytest

from headwise.diagnosis.child import answer

HOST = '''
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

class Host(nn.Module):
    """mask: True at padding."""
    def __init__(self, d_model, n_heads, block_size=16, p=0.1):
        super().__init__()
        assert d_model % n_heads == 0
        self.h, self.p = n_heads, p
        self.q, self.k, self.v, self.o = (nn.Linear(d_model, d_model) for _ in range(4))
        {kept}

    def forward(self, x{argument}):
        b, n, d = x.shape
        q, k, v = (f(x).view(b, n, self.h, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        {line}
        return self.o(y.transpose(1, 2).reshape(b, n, d))
'''
ROOT = "q.shape[-1] ** 0.5"
KEPT = 'self.register_buffer("low", torch.tril(torch.ones(block_size, block_size)))'


def faults(tmp_path, line, argument="", kept=KEPT):
    path = tmp_path / "host.py"
    path.write_text(HOST.format(line=line, argument=argument, kept=kept), encoding="utf-8")
    found = answer({"target": f"{path}:Host"})["diagnosis"]["findings"]
    return sorted(each["kind"] for each in found if each["severity"] == "fault")


@pytest.mark.parametrize(
    ("weights", "kinds"),
    [
        (f"(q @ k.mT / {ROOT} * self.low[:n, :n]).softmax(-1)", ["causal-zeroed"]),
        ("(q @ k.mT * d * self.low[:n, :n]).softmax(-1)", ["causal-zeroed", "scale-wrong"]),
        (f"(q @ k.mT / {ROOT}).masked_fill(self.low[:n, :n] == 0, -torch.inf).softmax(-1)", []),
    ],
)
def test_scores_of_later_keys_that_are_zero_are_seen_whatever_the_scale(tmp_path, weights, kinds):
    assert faults(tmp_path, f"y = {weights} @ v") == kinds


def test_dropout_in_evaluation_is_told_beside_a_mask_that_is_turned_round(tmp_path):
    mask = "None if mask is None else mask[:, None, None]"
    line = f"y = scaled_dot_product_attention(q, k, v, attn_mask={mask}, dropout_p=self.p)"
    assert faults(tmp_path, line, ", mask=None", kept="") == ["dropout-in-eval", "mask-inverted"]
