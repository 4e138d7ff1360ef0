"""What lets a token read later ones beside attention that looks back, and the lines where layers are built."""

import pytest

from tests.diagnosis.written import HEAD, blamed_in, found_in, marked

NEAR = '''

class Forecast(nn.Module):
    """{words}"""

    def __init__(self, width=24, heads=3):
        super().__init__()
        self.heads, self.qkv = heads, nn.Linear(width, 3 * width)
        self.near = {layer}  # <-

    def forward(self, x):
        # x: (batch, time, width)
        x = {step}
        q, k, v = (y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        s = (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(later, float("-inf"))
        return (s.softmax(-1) @ v).transpose(1, 2).flatten(2)
'''


@pytest.mark.parametrize(
    ("layer", "step", "words", "kinds"),
    [
        ("nn.Conv1d(width, width, 3, padding=1)", "self.near(x.mT).mT", "", ["later-tokens-read"]),
        ("nn.GroupNorm(1, width)", "self.near(x.mT).mT", "", ["later-tokens-read"]),
        ("nn.Conv1d(width, width, 3)", "self.near(F.pad(x.mT, (2, 0))).mT", "", []),
        ("nn.LayerNorm(width)", "self.near(x)", "", []),
        ("nn.Conv1d(width, width, 3, padding=1)", "self.near(x.mT).mT", "A look-ahead of one step.", []),
    ],
    ids=["symmetric", "over time", "left", "each token", "meant"],
)
def test_a_step_that_reads_later_tokens_is_told_where_all_attention_looks_back(layer, step, words, kinds):
    source = HEAD + NEAR
    for name, text in (("layer", layer), ("step", step), ("words", words)):
        source = source.replace("{" + name + "}", text)
    assert blamed_in(source, "Forecast") == [each for kind in kinds for each in marked(source, kind)]


LAYERS = '''

class Rooms(nn.Module):
    """x: (batch, people, width)"""

    def __init__(self, width=24, heads=3):
        super().__init__()
        {built}

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x, x, x)[0]
        return x
'''


@pytest.mark.parametrize(
    "built",
    [
        "self.layers = nn.ModuleList()\n        self.layers.append(nn.MultiheadAttention(width, heads))  # <-",
        "self.layers = nn.ModuleList(nn.MultiheadAttention(width, heads) for _ in range(2))  # <-",
    ],
    ids=["appended", "built"],
)
def test_samples_that_are_taken_for_tokens_are_told_where_the_layer_is_built(built):
    source = HEAD + LAYERS.replace("{built}", built)
    assert blamed_in(source, "Rooms") == marked(source, "batch-length-confused")


HALVES = '''"""{head}"""

import torch
from torch import nn


class Attend(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.three = nn.Linear(width, 3 * width)

    def forward(self, x, mask=None):
        # mask: (batch, tokens), True = a real token
        q, k, v = self.three(x).chunk(3, -1)
        s = q @ k.mT * q.shape[-1] ** -0.5
        if mask is not None:
            s = s.masked_fill(~mask[:, None], -1e9)  # <-
        return s.softmax(-1) @ v
'''


@pytest.mark.parametrize(("head", "verdict"), [("It is served with .half().", "faulty"), ("It is served.", "sound")])
def test_what_the_head_of_a_file_says_of_halves_counts(head, verdict):
    found = found_in(HALVES.replace("{head}", head))
    assert found.verdict == verdict
    assert [each.kind for each in found.findings if each.kind != "heads-not-divisible"] == ["mask-half-overflow"]
