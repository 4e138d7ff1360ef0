"""What a block hands on: the sum of its input and its attention; and what its training asks of the order of tokens."""

import pytest

import headwise as hw
from tests.diagnosis.written import blamed_in, line_of

BLOCK = """import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width=24, heads=3):
        super().__init__()
        self.attn = nn.MultiheadAttention(width, heads, batch_first=True)
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def attend(self, x):
        return self.attn(x, x, x, need_weights=False)[0]

    def forward(self, x):
        h = x + self.attend(self.norm_1(x))
        return h + self.mlp(self.norm_2(h))
"""


@pytest.mark.parametrize(
    ("written", "is_right"),
    [
        ("return h + self.mlp(self.norm_2(h))", True),
        ("return x + self.mlp(self.norm_2(h))", False),
        ("return self.norm_2(x + self.mlp(h))", False),
        # both parts read the input, as in GPT-J
        ("return h + self.mlp(self.norm_2(x))", True),
        # a connection around both
        ("h = h + self.mlp(self.norm_2(h))\n        return x + self.norm_1(h)", True),
        # the input again at each turn
        ("for _ in range(2):\n            h = x + self.attend(h)\n        return h", True),
    ],
)
def test_the_second_sum_holds_the_first(written, is_right):
    source = BLOCK.replace("return h + self.mlp(self.norm_2(h))", written)
    at = written.splitlines()[-1].strip()
    assert blamed_in(source, "Block") == ([] if is_right else [("residual-dropped", line_of(source, at))])


BEHIND = (
    BLOCK.replace("self.attend(self.norm_1(x))", "self.attend(x)")
    .replace("h = x +", "h = self.norm_1(x +")
    .replace("self.attend(x)\n        return", "self.attend(x))\n        return")
)


@pytest.mark.parametrize(
    ("written", "is_right"),
    [
        ("return self.norm_2(h + self.mlp(h))", True),
        ("return self.norm_2(x + self.mlp(h))", False),
        # a connection around both
        ("h = self.norm_2(h + self.mlp(h))\n        return self.norm_1(x + h)", True),
        # the second sum has no norm behind it
        ("return x + self.mlp(h)", True),
    ],
)
def test_the_second_sum_of_a_block_with_its_norms_behind_holds_the_first(written, is_right):
    source = BEHIND.replace("return h + self.mlp(self.norm_2(h))", written)
    at = written.splitlines()[-1].strip()
    assert blamed_in(source, "Block") == ([] if is_right else [("residual-dropped", line_of(source, at))])


@pytest.mark.parametrize(
    ("written", "second", "is_right"),
    [
        ("x = self.norm_1(x)\n        h = x + self.attend(x)", "h + self.mlp(self.norm_2(h))", False),
        # both parts add to what is normed (Megatron-LM's apply_residual_connection_post_layernorm)
        ("x = self.norm_1(x)\n        h = self.norm_2(x + self.attend(x))", "h + self.mlp(h)", True),
        # a norm of what comes in, and one of the part's own
        ("x = self.norm_1(x)\n        h = x + self.attend(self.norm_2(x))", "h + self.mlp(self.norm_2(h))", True),
        # the input goes on beside its norm
        ("n = self.norm_1(x)\n        h = n + self.attend(n) + x", "h + self.mlp(self.norm_2(h))", True),
    ],
)
def test_a_block_adds_to_its_input_and_not_to_its_norm(written, second, is_right):
    source = BLOCK.replace("h = x + self.attend(self.norm_1(x))", written).replace(
        "h + self.mlp(self.norm_2(h))", second
    )
    assert blamed_in(source, "Block") == (
        [] if is_right else [("residual-normed", line_of(source, "x = self.norm_1(x)"))]
    )


ITEMS = '''import torch
import torch.nn.functional as F
from torch import nn


class Items(nn.Module):
    """Scores of all items for each place of a history (batch, length)."""

    def __init__(self, n_items=50, max_len=64, width=24, heads=3):
        super().__init__()
        self.items, self.places = nn.Embedding(n_items, width), nn.Embedding(max_len, width)
        self.attn = nn.MultiheadAttention(width, heads, batch_first=True)
        self.head = nn.Linear(width, n_items)

    def forward(self, items):
        x = self.items(items) + self.places(torch.arange(items.shape[1], device=items.device))
        x = x + self.attn(x, x, x, need_weights=False)[0]
        return self.head(x)

    def loss(self, items):
        logits = self(items[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1), items[:, 1:].flatten())
'''
SMOOTH = "logits = self(items)\n        return F.mse_loss(logits[:, 1:], logits[:, :-1])"
TOLD = "logits = self(items[:, :-1])\n        return F.cross_entropy(logits.flatten(0, 1), items[:, 1:].flatten())"


@pytest.mark.parametrize(
    ("loss", "is_causal"),
    [
        (TOLD, True),
        ("first, then = items[:, :-1], items[:, 1:]\n        return F.cross_entropy(self(first).mT, then)", True),
        ("logits = self(items)\n        return F.cross_entropy(logits[:, :-1].mT, items[:, 1:])", True),
        ("logits = self(items)\n        return F.cross_entropy(logits.mT, items)", False),
        (SMOOTH, False),
    ],
    ids=["inputs but the last", "both named", "logits but the last", "the tokens themselves", "smoothness"],
)
def test_what_is_trained_to_tell_the_next_token_looks_back_only(tmp_path, loss, is_causal):
    source = ITEMS.replace(TOLD, loss)
    file = tmp_path / "written.py"
    file.write_text(source, encoding="utf-8")
    report = hw.doctor(f"{file}:Items")
    at = line_of(source, "self.attn(x")
    assert [(each.kind, each.line) for each in report.faults] == ([("causal-missing", at)] if is_causal else [])


CAPTIONS = """import torch
import torch.nn.functional as F
from torch import nn


class Captions(nn.Module):
    def __init__(self, vocab_size=50, width=24, heads=3):
        super().__init__()
        self.words, self.head = nn.Embedding(vocab_size, width), nn.Linear(width, vocab_size)
        self.see, self.say, self.look = (nn.MultiheadAttention(width, heads, batch_first=True) for _ in range(3))

    def forward(self, memory, words):
        memory = memory + self.see(memory, memory, memory, need_weights=False)[0]
        x = self.words(words)
        later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        x = x + self.say(x, x, x, attn_mask=later, need_weights=False)[0]
        return self.head(x + self.look(x, memory, memory, need_weights=False)[0])

    def loss(self, memory, words):
        logits = self(memory, words)
        return F.cross_entropy(logits[:, :-1].flatten(0, 1), words[:, 1:].flatten())
"""


def test_of_two_inputs_the_one_whose_tokens_are_told_looks_back_only(tmp_path):
    file = tmp_path / "written.py"

    def blamed(source):
        file.write_text(source, encoding="utf-8")
        return [(each.kind, each.line) for each in hw.doctor(f"{file}:Captions").faults]

    assert blamed(CAPTIONS) == []
    # a triangle that is made and not used would be named itself
    lines = [line for line in CAPTIONS.splitlines() if "later = " not in line]
    source = "\n".join(lines).replace("attn_mask=later, ", "")
    assert blamed(source) == [("causal-missing", line_of(source, "self.say(x"))]


JOINT = """import torch
from torch import nn
from torch.nn import functional as F


class Joint(nn.Module):
    def __init__(self, width, other, heads):
        super().__init__()
        self.heads = heads
        self.image, self.text = nn.Linear(width, 3 * width), nn.Linear(other, 3 * width)
        self.to_image, self.to_text = nn.Linear(width, width), nn.Linear(width, other)

    def parts(self, t):
        return t.unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)

    def forward(self, image, text):
        # image: (batch, patches, width); text: (batch, words, other)
        q, k, v = torch.cat((self.parts(self.text(text)), self.parts(self.image(image))), dim=3)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        {cut}
        return self.to_image(seen), self.to_text(read)
"""


@pytest.mark.parametrize(
    ("cut", "is_right"),
    [
        ("read, seen = y.split([text.shape[1], image.shape[1]], dim=1)", True),
        ("read, seen = y[:, : text.shape[1]], y[:, text.shape[1] :]", True),
        # one token of all, and the others
        ("read, seen = y[:, :1], y[:, 1:]", True),
        ("seen, read = y.split([image.shape[1], text.shape[1]], dim=1)", False),
        ("seen, read = y[:, : image.shape[1]], y[:, image.shape[1] :]", False),
    ],
)
def test_joined_streams_are_cut_apart_where_they_were_joined(cut, is_right):
    source = JOINT.replace("{cut}", cut)
    assert blamed_in(source, "Joint") == ([] if is_right else [("streams-swapped", line_of(source, cut))])
