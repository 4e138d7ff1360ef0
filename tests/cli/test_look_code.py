"""headwise look FILE:CLASS: one call of anyone's code, its heads printed, written and refused, in both languages."""

import json

import pytest

from headwise.pages.code_target import code_target

CODE = """
import math
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.qkv = heads, nn.Linear(dim, 3 * dim)

    def forward(self, x):
        B, L, D = x.shape
        q, k, v = (t.view(B, L, self.heads, -1).transpose(1, 2) for t in self.qkv(x).chunk(3, dim=-1))
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        scores = scores.masked_fill(torch.ones(L, L).tril() == 0, float("-inf"))
        return (scores.softmax(-1) @ v).transpose(1, 2).reshape(B, L, D)


class Masked(Attention):
    def forward(self, x, mask=None):
        '''mask: (B, L), True where a key may be attended to.'''
        B, L, D = x.shape
        q, k, v = (t.view(B, L, self.heads, -1).transpose(1, 2) for t in self.qkv(x).chunk(3, dim=-1))
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        if mask is not None:
            scores = scores.masked_fill(~mask[:, None, None, :], float("-inf"))
        return (scores.softmax(-1) @ v).transpose(1, 2).reshape(B, L, D)


class MustMask(Masked):
    def forward(self, x, mask):
        return super().forward(x, mask.bool())


class OverHeads(Attention):
    def forward(self, x):
        B, L, D = x.shape
        q, k, v = (t.view(B, L, self.heads, -1) for t in self.qkv(x).chunk(3, dim=-1))
        return ((q @ k.transpose(-2, -1)).softmax(-1) @ v).reshape(B, L, D)


class OverQueries(Attention):
    def forward(self, x):
        B, L, D = x.shape
        q, k, v = (t.view(B, L, self.heads, -1).transpose(1, 2) for t in self.qkv(x).chunk(3, dim=-1))
        return ((q @ k.transpose(-2, -1)).softmax(-2) @ v).transpose(1, 2).reshape(B, L, D)


class Pooling(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.score = nn.Linear(dim, 1)

    def forward(self, x):
        return self.score(x).softmax(1).transpose(1, 2) @ x


class Broken(nn.Module):
    def forward(self, x):
        raise KeyError("nothing")


class Untransposed(Attention):
    def forward(self, x):
        B, L, D = x.shape
        q, k, v = (t.view(B, L, self.heads, -1).transpose(1, 2) for t in self.qkv(x).chunk(3, dim=-1))
        return ((q @ k).softmax(-1) @ v).transpose(1, 2).reshape(B, L, D)


def attention(q, k, v):
    return (q @ k.transpose(-2, -1)).softmax(-1) @ v
"""


@pytest.fixture
def code(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "attn.py").write_text(CODE, encoding="utf-8")
    (tmp_path / "note.md").write_text(f"# A note\n\n```python\n{CODE}```\n", encoding="utf-8")
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "inner.py").write_text(CODE, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("target", ["attn.py:Attention", "note.md:Attention"])
def test_the_heads_of_a_class_are_printed_with_how_it_was_called(headwise, code, target):
    done = headwise("look", target, "--init", '{"dim": 8, "heads": 2}', "--call", '{"x": [3, 5, 8]}')
    assert (done.exit_code, done.stderr) == (0, "")
    assert f"Understood as code: {target}" in done.stdout
    assert "B=3, L=5, H=2, d=4, D=8" in done.stdout
    assert "(3, 2, 5, 5)" in done.stdout
    # a map bears the name of its class, where no part has one
    assert "Map 0: Attention, (batch" in done.stdout
    # a causal mask: the first position has itself only
    assert "0 0 100█" in done.stdout
    assert list(code.glob("*.html")) == []


def test_how_code_is_called_stands_on_one_line_however_narrow_the_terminal(headwise, code, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    lines = headwise("look", "attn.py:attention").stdout.splitlines()
    (call,) = [line for line in lines if line.startswith("  --call '")]
    assert list(json.loads(call.removeprefix("  --call ").strip("'"))) == ["q", "k", "v"]


def test_what_it_answers_is_data_in_english_and_words_in_chinese(headwise, code):
    found = json.loads(headwise("look", "attn.py:Attention", "--json").stdout)
    (made,) = found["maps"]
    B, H, L, _ = made["shape"]
    assert made["name"] == "Attention"
    assert (found["schema"], found["target"], L) == (1, "attn.py:Attention", len(found["tokens"]))
    assert (found["sizes"]["B"], found["sizes"]["H"], found["unseen"]) == (B, H, {})
    assert all(abs(sum(row) - 1) < 1e-5 for row in made["weights"][0][0])
    assert made["weights"][0][0][0] == [1.0] + [0.0] * (L - 1)
    spoken = headwise("look", "attn.py:attention", "--lang", "zh").stdout
    assert "按代码理解：attn.py:attention" in spoken
    assert "第 0 张图：attention，（批" in spoken


def test_a_mask_is_applied_only_where_it_is_declared_or_needed_and_is_named_then(headwise, code):
    declared = '{"x": ["B", "L", "D"], "_mask": {"argument": "mask", "means": "attend", "shape": ["B", "L"]}}'
    plain = [("attn.py:Masked",), ("attn.py:Masked", "--call", '{"x": ["B", "L", "D"], "mask": null}')]
    for args in plain:
        done = headwise("look", *args)
        assert (done.exit_code, "mask is applied" in done.stdout, "_mask" in done.stdout) == (0, False, False)
    done = headwise("look", "attn.py:Masked", "--call", declared)
    assert done.exit_code == 0
    assert "A made-up mask is applied: mask [B, L], where 1 or True means: may be seen." in done.stdout
    spoken = headwise("look", "attn.py:MustMask", "--lang", "zh")
    assert spoken.exit_code == 0
    assert "使用了自动生成的掩码：mask [B, L]" in spoken.stdout


def test_what_a_child_refuses_is_said_in_chinese_alone_with_one_full_stop_after_torchs_words(headwise, code):
    refused = headwise("look", "attn.py:Untransposed", "--lang", "zh")
    assert refused.exit_code == 2
    assert refused.stderr.startswith("attn.py:Untransposed 必须能运行一次才能显示它的头，但失败了：RuntimeError: ")
    assert "]。请用 --init 和 --call" in refused.stderr
    english = headwise("look", "attn.py:Untransposed").stderr
    assert "]. Say how it is built and called" in english
    assert ".." not in english


def test_the_page_is_written_where_it_is_asked_for(headwise, code):
    done = headwise("look", "attn.py:Attention", "-o", "heads.html")
    assert done.exit_code == 0
    assert done.stdout.endswith("Written: heads.html\n")
    assert "Content-Security-Policy" in (code / "heads.html").read_text(encoding="utf-8")
    again = headwise("look", "attn.py:Attention", "-o", "heads.html")
    assert again.exit_code != 0
    assert "heads.html" in again.stderr


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (("attn.py:Pooling",), "its scores are no product of queries and keys"),
        (("attn.py:Broken",), "fails: KeyError: 'nothing'"),
        (("missing.py:Attention",), "there is no missing.py"),
        (("attn.py:Nothing",), "it defines Attention, Masked, MustMask, OverHeads, OverQueries, Pooling, Broken"),
        (("attn.py:OverHeads",), "attn.py:OverHeads are [B, L, H, H]: run headwise doctor attn.py:OverHeads."),
        (
            ("attn.py:OverQueries",),
            "OverQueries computes a softmax of its own over (2, 5, 11, 11), but it is normalised "
            "over another axis than the product with the values sums over; run headwise doctor attn.py:OverQueries.",
        ),
        (("attn.py:Attention", "--query", "it"), "attn.py:Attention is code, and --query can only be given"),
        (("attn.py:Attention", "--layer", "3"), "from 0 to 0, since attn.py:Attention has 1, but 3 came"),
        (("attn.py:Attention", "--head", "99"), "but 99 came"),
        (("Note: this", "--init", "{}"), "--init can only be given with code"),
    ],
)
def test_what_cannot_be_looked_at_is_refused_in_one_sentence(headwise, code, args, sentence):
    done = headwise("look", *args)
    assert done.exit_code != 0
    assert sentence in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_a_text_that_holds_a_colon_is_a_text(code):
    texts = ["Remember: it", "a:b", "12:30", "http://x.org:Page", "attn:Attention", "a file.py: that", "time.is:money",
             "see attn.py:", "see new.py:Attention", ":Attention", "x\0y:Name"]  # fmt: skip
    assert [text for text in texts if code_target(text) is not None] == []
    named = ["attn.py:Attention", "note.md:A.b", "missing.py:Attention", "headwise.layer:MultiHeadAttention",
             "torch.nn:Linear"]  # fmt: skip
    assert [text for text in named if code_target(text) is None] == []
