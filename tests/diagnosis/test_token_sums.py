"""Sums over tokens whose weights no scores give, as in linear attention, are held to what weights must be."""

import pytest

from headwise.diagnosis.comparison import COMPARISON
from tests.diagnosis.written import blamed_in, found_in, line_of

HEAD = """import torch
import torch.nn as nn
import torch.nn.functional as F


class Sum(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(dim, dim) for _ in range(4))

    def split(self, x):
        q, k, v = (part(x).view(*x.shape[:2], self.heads, -1) for part in (self.q, self.k, self.v))
        return F.elu(q) + 1, F.elu(k) + 1, v

"""
RUNNING = """    def forward(self, x):
        q, k, v = self.split(x)
        state = torch.einsum("bnhd,bnhe->bnhde", k, v).cumsum(1)
        total = (q * k.cumsum(1)).sum(-1, keepdim=True)
        return self.o((torch.einsum("bnhd,bnhde->bnhe", q, state) / total).flatten(2))
"""
MASKED = '''    def forward(self, x, mask=None):
        """x: (B, L, dim); mask: (B, L), True for tokens that are there"""
        q, k, v = self.split(x)
        if mask is not None:
            k = k * mask[:, :, None, None]
        total = 1 / (torch.einsum("bnhd,bhd->bnh", q, k.sum(1)) + 1e-6)
        return self.o(torch.einsum("bnhd,bhde,bnh->bnhe", q, torch.einsum("bnhd,bnhe->bhde", k, v), total).flatten(2))
'''
POOLED = '''    def forward(self, x, mask=None):
        """x: (B, L, dim); mask: (B, L), True for tokens that are there"""
        scores = self.q(x).tanh().sum(-1)
        if mask is not None:
            scores = scores.masked_fill(~mask, float("-inf"))
        return torch.bmm(scores.softmax(-1).unsqueeze(1), self.v(x)).squeeze(1)
'''
CROSSED = '''    def forward(self, x, source, x_mask=None, source_mask=None):
        """x: (B, L, dim); source: (B, S, dim); x_mask: (B, L) and source_mask: (B, S), 1 for tokens that are there"""
        q, k, v = self.split(x)[0], *self.split(source)[1:]
        if x_mask is not None:
            q = q * x_mask[:, :, None, None]
        if source_mask is not None:
            k = k * source_mask[:, :, None, None]
        total = 1 / (torch.einsum("bnhd,bhd->bnh", q, k.sum(1)) + 1e-6)
        return self.o(torch.einsum("bnhd,bhde,bnh->bnhe", q, torch.einsum("bnhd,bnhe->bhde", k, v), total).flatten(2))
'''
SOFTMAXES = """    def forward(self, x, memory=None):
        q, k, v = self.q(x), self.k(x if memory is None else memory), self.v(x if memory is None else memory)
        return self.o(q.softmax(-1) @ (k.softmax(-2).mT @ v))
"""


@pytest.mark.parametrize(
    ("body", "name"),
    [(RUNNING, "linear attention"), (MASKED, "linear attention"), (CROSSED, "linear attention"),
     (SOFTMAXES, "linear attention"), (POOLED, "attention pooling")],
    ids=["running", "masked", "masked queries", "two softmaxes", "pooled"],
)  # fmt: skip
def test_weights_that_sum_to_1_and_leave_out_what_is_hidden_are_sound(body, name):
    found = found_in(HEAD + body, "Sum")
    assert (found.verdict, found.faults) == ("sound", ())
    assert found.examined[COMPARISON].startswith(name)
    assert [found.examined[law] for law in ("samples", "second call", "state_dict")] == [True] * 3


@pytest.mark.parametrize(
    ("body", "right", "wrong", "kind"),
    [
        (RUNNING, "k.cumsum(1)", "k.cumsum(2)", "normaliser-wrong"),
        (RUNNING, "k.cumsum(1)", "k.sum(1, keepdim=True)", "normaliser-wrong"),
        (MASKED, "k.sum(1)", "k.mean(1)", "normaliser-wrong"),
        (CROSSED, "k.sum(1)", "k.mean(1)", "normaliser-wrong"),
        (RUNNING, '(q * k.cumsum(1)).sum(-1, keepdim=True)', 'torch.einsum("bnhd,bhd->bnh", q, k.sum(1))[..., None]',
         "normaliser-wrong"),
        (MASKED, "k.sum(1)", "(F.elu(self.k(x).view(q.shape)) + 1).sum(1)", "normaliser-wrong"),
        (POOLED, "scores.masked_fill(~mask, float(\"-inf\"))", "scores * mask", "mask-multiplied"),
        (POOLED, "float(\"-inf\")", "0.0", "mask-weak-fill"),
        # whether a sample has any tokens hides none of them
        (POOLED.replace("scores.softmax(-1)", "(scores.softmax(-1) * (mask.any(-1, keepdim=True) if mask is not None "
                        "else 1))"), "float(\"-inf\")", "1e-30", "mask-weak-fill"),
    ],
)  # fmt: skip
def test_what_the_weights_miss_is_told_with_its_line(body, right, wrong, kind):
    source = HEAD + body.replace(right, wrong, 1)
    assert blamed_in(source, "Sum") == [(kind, line_of(source, wrong))]


@pytest.mark.parametrize(
    "body",
    [
        # xLSTM (arXiv:2405.04517) divides by no less than a number
        RUNNING.replace(".sum(-1, keepdim=True)", ".sum(-1, keepdim=True).abs().clamp(min=60.0)"),
        # a gate, and no normaliser
        RUNNING.replace(" / total", " * self.q(x).view(q.shape).sigmoid()"),
        POOLED.replace("scores.softmax(-1)", "scores.sigmoid()"),
    ],
    ids=["no less than a number", "gated", "no shares"],
)
def test_what_is_divided_by_something_else_on_purpose_is_not_examined(body):
    found = found_in(HEAD + body, "Sum")
    assert (found.verdict, found.faults) == ("not examined", ())


CHANNELS = """import torch
import torch.nn as nn
import torch.nn.functional as F


class Channels(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.o = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.temperature = nn.Parameter(torch.ones(heads, 1, 1))

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 4, 1)
        q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
        weights = (q @ k.transpose(-2, -1) * self.temperature).softmax(dim=-1)
        return self.o((weights @ v).permute(0, 3, 1, 2).reshape(b, n, c))
"""


def test_attention_over_channels_is_examined():
    found = found_in(CHANNELS, "Channels")
    assert (found.verdict, found.faults) == ("sound", ())
    assert found.examined[COMPARISON].startswith("attention over channels")


def test_scores_of_features_that_nobody_speaks_of_are_not_called_sound():
    source = CHANNELS.replace("Channels", "Attention")
    assert found_in(source, "Attention").verdict == "not examined"


def test_attention_over_channels_whose_weights_do_not_sum_to_1_is_not_called_sound():
    source = CHANNELS.replace("softmax(dim=-1)", "softmax(dim=-2)")
    assert found_in(source, "Channels").verdict == "not examined"
