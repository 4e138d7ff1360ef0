"""The forms of the four notes, in notes of our own: what is wrong in each is found on its line."""

from headwise.diagnosis.entry_point import doctor
from tests.diagnosis.written import line_of

FLOORED = """# 多头注意力

说明在前。

```python
import math
import torch
import torch.nn as nn
import torch.nn.functional as F

class MultiHeadAttention(nn.Module):
    def __init__(self, model_dim, num_heads, dropout=0.1):
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = model_dim // num_heads
        self.q_proj = nn.Linear(model_dim, model_dim)
        self.k_proj = nn.Linear(model_dim, model_dim)
        self.v_proj = nn.Linear(model_dim, model_dim)
        self.o_proj = nn.Linear(model_dim, model_dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, q, k, v, mask=None):
        b, n, c = q.shape
        q = self.q_proj(q).view(b, n, self.num_heads, self.head_dim).transpose(1, 2)
        k = self.k_proj(k).view(b, n, self.num_heads, self.head_dim).transpose(1, 2)
        v = self.v_proj(v).view(b, n, self.num_heads, self.head_dim).transpose(1, 2)
        scores = torch.matmul(q, k.transpose(-1, -2)) // math.sqrt(self.head_dim)
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -1e09)
        prob = self.dropout(F.softmax(scores, dim=-1))
        return self.o_proj(torch.matmul(prob, v).transpose(1, 2).contiguous().view(b, n, c))

mha = MultiHeadAttention(512, 8)
print(mha(torch.randn(10, 60, 512), torch.randn(10, 60, 512), torch.randn(10, 60, 512)).shape)
```
"""
MISNAMED = """---
title: "Multi-Head Attention"
---

```python
class MultiHeadedAttention(nn.Module):
    def __init__(self, h, d_model, dropout=0.1):
        super(MultiHeadedAttention, self).__init__()
        self.d_k = d_model // h
        self.h = h
        self.linears = clones(nn.Linear(d_model, d_model), 4)
        self.dropout = nn.Dropout(p=dropout)

    def forward(self, query, key, value, mask=None):
        if mask is not None:
            mask = mask.unsqueeze(1)
        n = query.size(0)
        query, key, value = [
            l(x).view(n, -1, self.h, self.d_k).transpose(1, 2) for l, x in zip(self.linears, (query, key, value))
        ]
        x, self.attn = attention(query, key, value, mask=mask, dropout=self.dropout)
        x = x.transpose(1, 2).contiguous().view(n, -1, self.h * self.d_k)
        return self.linear[-1](x)
```
"""


def test_floor_division_and_the_length_of_keys_are_found_in_a_note_of_the_first_form(tmp_path):
    note = tmp_path / "note.md"
    note.write_text(FLOORED, encoding="utf-8")
    found = doctor(f"{note}:MultiHeadAttention")
    assert found.verdict == "faulty"
    assert {(each.kind, each.line) for each in found.faults} == {
        ("key-uses-query-length", line_of(FLOORED, "k = self.k_proj")),
        ("key-uses-query-length", line_of(FLOORED, "v = self.v_proj")),
        ("scale-floor-division", line_of(FLOORED, ") // math")),
    }
    assert all(each.proved for each in found.faults)
    # though no call with more keys runs as it is written
    assert (found.examined["order of keys"], found.examined["cross"]) == (True, True)


def test_a_wrong_attribute_is_found_in_a_note_whose_names_are_supplied(tmp_path):
    note = tmp_path / "note.md"
    note.write_text(MISNAMED, encoding="utf-8")
    found = doctor(f"{note}:MultiHeadedAttention")
    (finding,) = found.faults
    assert (finding.kind, finding.line, finding.proved) == ("wrong-attribute", line_of(MISNAMED, "self.linear["), True)
    assert "self.linears[-1]" in finding.patch
    assert found.examined["self"] is True
    assert found.examined["mask"].startswith("mask: ")
