"""A method that generates goes on from the last tokens of a text that is longer than the model takes."""

import pytest

from tests.diagnosis.kinds import TEMPLATES
from tests.diagnosis.written import faults_in_file, line_of

RIGHT = TEMPLATES["GENERATES"].text
CROP = "ids[:, -self.block_size :]"
ALL = f"self({CROP})"
FORWARD = "        # ids: (batch, tokens)\n"
LOOP = "        for _ in range(max_new_tokens):\n"
NEW = "logits[:, -1].softmax(dim=-1).multinomial(1)"
# the text is filled up behind with a token that no earlier one attends to
FILLED = """kept = ids[:, -self.block_size :]
            filled = torch.nn.functional.pad(kept, (0, self.block_size - kept.shape[1]))
            logits = self(filled)[:, : kept.shape[1]]"""


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ([(CROP, "ids[:, : self.block_size]")], ": self.block_size]"),
        ([(CROP, "ids.narrow(1, 0, min(ids.shape[1], self.block_size))")], "ids.narrow"),
        ([(ALL, "self.forward(ids[:, : self.block_size])")], ": self.block_size]"),
        ([(CROP, "ids"), (FORWARD, f"{FORWARD}        ids = ids[:, : self.block_size]\n")], "ids = ids[:, :"),
        ([(CROP, "ids[:, : self.block_size]"), (NEW, "logits[:, -1].argmax(dim=-1, keepdim=True)")], ": self.block"),
    ],
    ids=["sliced", "narrowed", "forward by its name", "in forward", "the likeliest token"],
)
def test_a_text_that_is_cropped_to_its_first_tokens_is_a_fault(tmp_path, changes, part):
    source = RIGHT
    for right, wrong in changes:
        assert right in source
        source = source.replace(right, wrong)
    assert faults_in_file(tmp_path, "Attention", source) == [("generation-window", line_of(source, part))]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", ""),
        (f"logits = {ALL}", FILLED),
        (LOOP, f"{LOOP}            if ids.shape[1] >= self.block_size:\n                break\n"),
        (LOOP, f"        ids = ids[:, : self.block_size - max_new_tokens]\n{LOOP}"),
        (LOOP, f"        assert ids.shape[1] + max_new_tokens <= self.block_size\n{LOOP}"),
        (ALL, f"self({CROP} if ids.shape[1] > self.block_size else ids[:, : self.block_size])"),
    ],
    ids=["the last", "filled up", "stops at the limit", "a cropped prompt", "refuses", "two ways"],
)
def test_other_windows_are_left(tmp_path, before, after):
    source = RIGHT.replace(before, after) if before else RIGHT
    assert source != RIGHT or not before
    assert faults_in_file(tmp_path, "Attention", source) == []


CACHED = """import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, vocabulary, d_model, n_heads, max_len=16):
        super().__init__()
        if d_model % n_heads:
            raise ValueError("n_heads must divide d_model")
        self.n_heads, self.max_len = n_heads, max_len
        self.embedding = nn.Embedding(vocabulary, d_model)
        self.qkv_proj = nn.Linear(d_model, 3 * d_model)
        self.out_proj = nn.Linear(d_model, vocabulary)

    def forward(self, ids, past=None):
        qkv = self.qkv_proj(self.embedding(ids)).unflatten(-1, (3, self.n_heads, -1))
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        if past is not None:
            k, v = torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)
        n, m = q.shape[2], k.shape[2]
        allowed = torch.ones(n, m, dtype=torch.bool, device=ids.device).tril(m - n)
        context = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=allowed)
        return self.out_proj(context.transpose(1, 2).flatten(2)), (k, v)

    @torch.no_grad()
    def generate(self, ids, max_new_tokens):
        past, new = None, ids
        for _ in range(max_new_tokens):
            logits, past = self(new, past)
            new = logits[:, -1].softmax(dim=-1).multinomial(1)
            ids = torch.cat([ids, new], dim=1)
        return ids
"""


def test_a_cache_that_takes_token_after_token_is_left(tmp_path):
    assert faults_in_file(tmp_path, "Attention", CACHED) == []
