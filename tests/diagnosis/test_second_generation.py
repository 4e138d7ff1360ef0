"""A method that generates gives the same for the same prompt, however often it is called."""

import pytest

import headwise as hw
from tests.diagnosis.written import line_of

MODEL = """import torch
import torch.nn.functional as F
from torch import nn


class Attend(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.kept = None

    def forward(self, x, use_cache=False):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        if use_cache:
            if self.kept is not None:
                k, v = torch.cat([self.kept[0], k], dim=2), torch.cat([self.kept[1], v], dim=2)
            self.kept = k, v
        T, S = q.shape[2], k.shape[2]
        allowed = torch.ones(T, S, dtype=torch.bool, device=x.device).tril(S - T)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)
        return self.out(y.transpose(1, 2).flatten(2))


class Model(nn.Module):
    def __init__(self, vocab_size=50, width=24, heads=3):
        super().__init__()
        self.words = nn.Embedding(vocab_size, width)
        self.attend = Attend(width, heads)
        self.head = nn.Linear(width, vocab_size)

    def forward(self, ids, use_cache=False):
        x = self.words(ids)
        return self.head(x + self.attend(x, use_cache))

    @torch.no_grad()
    def generate(self, ids, max_new_tokens):
        self.attend.kept = None
        logits = self(ids, use_cache=True)[:, -1]
        for _ in range(max_new_tokens):
            chosen = torch.multinomial(logits.softmax(-1), 1)
            ids = torch.cat([ids, chosen], dim=1)
            logits = self(chosen, use_cache=True)[:, -1]
        return ids
"""
FORGOTTEN = "        self.attend.kept = None\n"


@pytest.mark.parametrize(
    ("change", "blamed"),
    [
        (("", ""), ""),
        ((FORGOTTEN, ""), "k, v = torch.cat"),
        ((FORGOTTEN, "    def reset(self):\n        self.attend.kept = None\n"), ""),
    ],
    ids=["forgets", "keeps", "forgets where it is told to"],
)
def test_keys_of_the_prompt_before_are_found(tmp_path, change, blamed):
    source = MODEL.replace(*change) if change[0] else MODEL
    if "def reset" in source:
        # a method of its own, behind the one that generates
        source = source.replace(change[1], "") + "\n" + change[1]
    file = tmp_path / "written.py"
    file.write_text(source, encoding="utf-8")
    report = hw.doctor(f"{file}:Model")
    wanted = [("stateful-forward", line_of(source, blamed))] if blamed else []
    assert [(each.kind, each.line) for each in report.faults] == wanted
