"""Code in which tokens meet otherwise than by softmax attention: which way it is, is said, with its line."""

import inspect

import pytest
import torch
from torch import nn

import headwise as hw


class Split(nn.Module):
    """Queries, keys and values (B, H, L, d) of one projection, and the output projection of their heads."""

    def __init__(self, dim, heads=3):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        return self.out(self.mixed(q, k, v).transpose(1, 2).flatten(2))


class LinearAttention(Split):
    """Katharopoulos et al. 2020 (arXiv:2006.16236), without its normaliser."""

    def mixed(self, q, k, v):
        state = (nn.functional.elu(k) + 1).mT @ v  # here
        return (nn.functional.elu(q) + 1) @ state


class RunningLinearAttention(Split):
    """The same, where each token sees those before it."""

    def mixed(self, q, k, v):
        state = (k.unsqueeze(-1) * v.unsqueeze(-2)).cumsum(2)  # here
        return torch.einsum("bhnd,bhnde->bhne", q, state)


class ChannelAttention(Split):
    """Features attend to features (Ali et al. 2021, arXiv:2106.09681), by weights that are no shares any more."""

    def mixed(self, q, k, v):
        scores = nn.functional.normalize(q, dim=-2).mT @ nn.functional.normalize(k, dim=-2)
        weights = scores.softmax(-1)  # here
        return v @ weights.square().mT


class Pooling(nn.Module):
    """One vector for each sample, by learned weights of its tokens that are no shares any more."""

    def __init__(self, dim):
        super().__init__()
        self.score = nn.Sequential(nn.Linear(dim, 7), nn.Tanh(), nn.Linear(7, 1))

    def forward(self, x):
        weights = self.score(x).softmax(dim=1)  # here
        return (weights.square() * x).sum(1)


class Convolved(nn.Module):
    """Tokens meet, but in no way that has a name here."""

    def __init__(self, dim):
        super().__init__()
        self.conv = nn.Conv1d(dim, dim, 3, padding=1)

    def forward(self, x):
        return self.conv(x.mT).mT.relu()


WAYS = {
    LinearAttention: "sums products of features over tokens to a state",
    RunningLinearAttention: "sums products of features over tokens to a state",
    ChannelAttention: "features attend to features",
    Pooling: "gives each token one weight, the same for every query",
}


def line_of(kind):
    lines, first = inspect.getsourcelines(kind)
    return first + next(n for n, line in enumerate(lines) if "# here" in line)


@pytest.mark.parametrize("kind", WAYS)
def test_how_tokens_meet_is_said_with_its_line(kind):
    diagnosis = hw.doctor(kind)
    assert diagnosis.verdict == "not examined"
    assert WAYS[kind] in diagnosis.reason
    assert f"ine {line_of(kind)} " in diagnosis.reason


def test_it_is_said_in_chinese():
    assert f"第 {line_of(Pooling)} 行的 softmax 给每个 token 一个权重" in hw.doctor(Pooling, lang="zh").reason


def test_no_way_is_named_where_none_is_known():
    assert "No attention of tokens to tokens was found" in hw.doctor(Convolved).reason
