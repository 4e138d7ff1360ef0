"""What a person says of a mask, beside whatever else is wrong."""

from __future__ import annotations

import pytest

from headwise.diagnosis.child import answer

TOLD = '''
import torch
from torch import nn

class Told(nn.Module):
    """{said}"""
    def __init__(self, d_model, n_heads):
        super().__init__()
        assert d_model % n_heads == 0
        self.h = n_heads
        self.q, self.k, self.v, self.o = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, x, mask=None):
        b, n, d = x.shape
        q, k, v = (f(x).view(b, n, self.h, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        a = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
{weights}
        return self.o((a @ v).transpose(1, 2).reshape(b, n, d))
'''
EARLY = """        if mask is not None:
            a = a.masked_fill(mask[:, None, None, :] == 1, float("-inf"))
        a = a.softmax(-1)"""
LATE = """        a = a.softmax(1)
        if mask is not None:
            a = a.masked_fill(mask[:, None, None, :] == 0, float("-inf"))"""


@pytest.mark.parametrize(
    ("said", "weights", "kinds"),
    [
        ("掩码里 1 表示可以看,0 表示遮住。", EARLY, ["mask-inverted"]),
        ("掩码里1表示该位置被遮住", EARLY, []),
        ("mask: (B, L) with True for padding.", LATE, ["mask-after-softmax", "mask-inverted", "softmax-axis"]),
    ],
)
def test_what_is_said_of_a_mask_counts_whatever_else_is_wrong(tmp_path, said, weights, kinds):
    path = tmp_path / "told.py"
    path.write_text(TOLD.format(said=said, weights=weights), encoding="utf-8")
    found = answer({"target": f"{path}:Told"})["diagnosis"]["findings"]
    assert sorted(each["kind"] for each in found if each["severity"] == "fault") == kinds
