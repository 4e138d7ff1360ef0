"""What a call may be given and is not by default is given too: positions, and masks of ones and zeros beside ids."""

import pytest

from tests.diagnosis.written import blamed_in, found_in, line_of

POSITIONS = """import torch
from torch import nn


class Layer(nn.Module):
    def __init__(self, width=24, heads=3):
        super().__init__()
        self.self_attn = nn.MultiheadAttention(width, heads)
        self.cross_attn = nn.MultiheadAttention(width, heads)
        self.norm = nn.LayerNorm(width)

    def forward(self, tgt, memory, pos=None, query_pos=None):
        q = k = tgt
        if query_pos is not None:
            q = q + query_pos
        tgt = self.norm(tgt + self.self_attn(q, k, value=tgt)[0])
        q = tgt if query_pos is None else tgt + query_pos
        k = memory if pos is None else memory + pos
        return self.norm(tgt + self.cross_attn(q, k, value=memory)[0])
"""
IDS = """import torch
from torch import nn


class Classifier(nn.Module):
    def __init__(self, vocab_size=50, width=24, heads=3, n_labels=2):
        super().__init__()
        self.heads = heads
        self.tok = nn.Embedding(vocab_size, width)
        self.qkv = nn.Linear(width, 3 * width)
        self.classifier = nn.Linear(width, n_labels)

    def forward(self, input_ids, attention_mask):
        x = self.tok(input_ids)
        b, s, d = x.shape
        q, k, v = (t.view(b, s, self.heads, -1).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        scores = q @ k.transpose(-1, -2) / (d // self.heads) ** 0.5
        scores = scores + attention_mask[:, None, None, :].to(x.dtype)
        x = (scores.softmax(-1) @ v).transpose(1, 2).reshape(b, s, d)
        return self.classifier(x[:, 0])
"""


def test_positions_that_are_added_to_the_argument_itself_are_found():
    source = POSITIONS.replace("q = q + query_pos", "q += query_pos")
    assert blamed_in(source, "Layer") == [("input-modified", line_of(source, "q += query_pos"))]
    assert blamed_in(POSITIONS, "Layer") == []


@pytest.mark.parametrize(
    ("mask", "faults"),
    [
        ("attention_mask[:, None, None, :].to(x.dtype)", [("mask-weak-fill", "scores = scores +")]),
        ("(1.0 - attention_mask[:, None, None, :].to(x.dtype)) * -1e9", []),
    ],
    ids=["added as they are", "as a bias"],
)
def test_beside_token_ids_an_attention_mask_holds_ones_and_zeros(mask, faults):
    source = IDS.replace("attention_mask[:, None, None, :].to(x.dtype)", mask)
    report = found_in(source, "Classifier")
    assert [(each.kind, each.line) for each in report.faults] == [(kind, line_of(source, at)) for kind, at in faults]
    assert report.verdict == ("faulty" if faults else "sound")


DOUBLED = """import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width=24, heads=3, dropout=0.1):
        super().__init__()
        self.attn = nn.MultiheadAttention(width, heads, batch_first=True)
        self.drop, self.norm = nn.Dropout(dropout), nn.LayerNorm(width)

    def forward(self, x):
        y = self.attn(x, x, x)[0]
        return self.norm(x + self.drop(y))
"""


@pytest.mark.parametrize("added", ["y + self.drop(y)", "y.add(y)"])
def test_an_attention_that_is_added_to_itself_lost_its_input(added):
    source = DOUBLED.replace("x + self.drop(y)", added)
    assert blamed_in(source, "Block") == [("residual-doubled", line_of(source, added))]
    assert blamed_in(DOUBLED, "Block") == []


CAUSAL = """import torch
import torch.nn.functional as F
from torch import nn


class Attend(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, padding_mask=None):
        B, T, C = x.shape
        q, k, v = (t.view(B, T, self.heads, -1).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        allowed = torch.ones(T, T, dtype=torch.bool, device=x.device).tril()
        if padding_mask is not None:
            allowed = padding_mask[:, None, None, :].bool()
        scores = q @ k.transpose(-2, -1) / (C // self.heads) ** 0.5
        scores = scores.masked_fill(~allowed, -1e9)
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(B, T, C))
"""


def test_a_mask_of_keys_that_takes_the_place_of_the_causal_one_opens_later_keys():
    assert blamed_in(CAUSAL, "Attend") == [("causal-replaced", line_of(CAUSAL, "scores.masked_fill"))]
    joined = CAUSAL.replace("allowed = padding_mask", "allowed = allowed & padding_mask")
    assert blamed_in(joined, "Attend") == []


POOLED = """import torch
from torch import nn


class Classifier(nn.Module):
    def __init__(self, vocab_size=60, width=24, heads=4, n_classes=3):
        super().__init__()
        self.emb = nn.Embedding(vocab_size, width)
        self.attn = nn.MultiheadAttention(width, heads, batch_first=True)
        self.fc = nn.Linear(width, n_classes)

    def forward(self, input_ids, attention_mask):
        x = self.emb(input_ids)
        x = x + self.attn(x, x, x, key_padding_mask=attention_mask == 0)[0]
        pooled = x.mean(dim=1)
        return self.fc(pooled)
"""
WITHOUT_PADDING = {
    "a mean of what is left": "(x * attention_mask[..., None]).sum(1) / attention_mask.sum(1, keepdim=True)",
    "the largest of what is left": "x.masked_fill(attention_mask[..., None] == 0, -1e9).amax(1)",
    "the first token": "x[:, 0]",
}


@pytest.mark.parametrize("pool", ["x.mean(dim=1)", "x.transpose(1, 2).sum(-1)", "x.amax(1)"])
def test_padding_that_is_pooled_with_the_tokens_is_found(pool):
    source = POOLED.replace("x.mean(dim=1)", pool)
    assert blamed_in(source, "Classifier") == [("padding-pooled", line_of(source, pool))]


@pytest.mark.parametrize("pool", WITHOUT_PADDING.values(), ids=WITHOUT_PADDING)
def test_tokens_that_are_pooled_without_their_padding_are_sound(pool):
    assert blamed_in(POOLED.replace("x.mean(dim=1)", pool), "Classifier") == []
