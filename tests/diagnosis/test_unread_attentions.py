"""Of each attention something reaches what a call gives."""

import pytest

from tests.diagnosis.written import blamed_in, line_of

MODEL = """import torch
from torch import nn


class Translator(nn.Module):
    def __init__(self, vocab_size=60, dim=24, heads=3):
        super().__init__()
        self.words, self.out = nn.Embedding(vocab_size, dim), nn.Linear(dim, vocab_size)
        self.encoder, self.own, self.cross = (nn.MultiheadAttention(dim, heads, batch_first=True) for _ in range(3))

    def forward(self, src, tgt):
        x, y = self.words(src), self.words(tgt)
        enc = x + self.encoder(x, x, x, need_weights=False)[0]
        later = torch.ones(y.shape[1], y.shape[1], dtype=torch.bool).triu(1)
        y = y + self.own(y, y, y, attn_mask=later, need_weights=False)[0]
        y = y + self.cross(y, enc, enc, need_weights=False)[0]
        return self.out(y)
"""


@pytest.mark.parametrize(
    ("changes", "is_right"),
    [
        ((), True),
        ((("self.cross(y, enc, enc", "self.cross(y, x, x"),), False),
        # handed out beside
        ((("self.cross(y, enc, enc", "self.cross(y, x, x"), ("return self.out(y)", "return self.out(y), enc")), True),
    ],
    ids=["the decoder reads it", "the decoder reads the embeddings", "it is another result"],
)
def test_an_encoder_that_nothing_reads_is_found(changes, is_right):
    source = MODEL
    for old, new in changes:
        source = source.replace(old, new)
    wanted = [] if is_right else [("attention-unread", line_of(source, "self.encoder(x"))]
    assert blamed_in(source, "Translator") == wanted


TOWERS = """import torch
from torch import nn


class Both(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.mine, self.theirs = (nn.MultiheadAttention(dim, heads, batch_first=True) for _ in range(2))

    def forward(self, a, v):
        return a + self.mine(a, v, v, need_weights=False)[0], v + self.theirs(v, a, a, need_weights=False)[0]


class Towers(nn.Module):
    def __init__(self, dim=24, heads=3, depth=2):
        super().__init__()
        self.blocks = nn.ModuleList([Both(dim, heads) for _ in range(depth)])

    def forward(self, audio, video):
        a, v = audio, video
        for block in self.blocks:
            {called}
        return a + v.mean(1, keepdim=True)
"""


@pytest.mark.parametrize(
    ("called", "kinds"),
    [
        ("a, v = block(a, v)", []),
        ("a, v = block(audio, video)  # <-", ["attention-unread"]),
    ],
)
def test_blocks_that_all_take_the_same_are_told_where_they_are_called(called, kinds):
    source = TOWERS.replace("{called}", called)
    assert blamed_in(source, "Towers") == [(kind, line_of(source, "# <-")) for kind in kinds]
