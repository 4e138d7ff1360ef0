"""A cache that rolls keeps the latest tokens; which ones it keeps is no choice."""

from math import sqrt

import pytest
import torch
from torch import nn

import headwise as hw


class Rolling(nn.Module):
    """Causal attention to the last tokens; the state holds as many, cut off from their gradient."""

    latest = True

    def __init__(self, width, heads, window):
        super().__init__()
        self.heads, self.window = heads, window
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, state=None):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        start = 0 if state is None else state["seen"]
        if state is not None:
            k, v = torch.cat([state["k"], k], 2), torch.cat([state["v"], v], 2)
        end = start + x.shape[1]
        distance = torch.arange(start, end)[:, None] - torch.arange(end - k.shape[2], end)
        scores = q @ k.transpose(-2, -1) / sqrt(q.shape[-1])
        scores = scores.masked_fill((distance < 0) | (distance >= self.window), float("-inf"))
        context = (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
        kept = slice(-self.window, None) if self.latest else slice(self.window)
        keys = k[:, :, kept].detach()
        return self.out(context), {"k": keys, "v": v[:, :, kept].detach(), "seen": end}


class Oldest(Rolling):
    """Keeps the first ones."""

    latest = False


@pytest.mark.parametrize(("kind", "faults"), [(Rolling, []), (Oldest, ["cache-lost"])])
def test_a_window_of_the_first_tokens_is_no_memory_of_a_segment(kind, faults):
    found = hw.doctor(kind)
    assert [fault.kind for fault in found.faults] == faults
    assert all("keys = k[:, :, kept]" in fault.source for fault in found.faults)
    assert found.verdict == ("faulty" if faults else "sound")


def turned(x, start):
    """Pairs of features turned by an angle for each place, the first of which is `start`."""
    half = x.shape[-1] // 2
    angles = torch.arange(start, start + x.shape[2])[:, None] * 10_000.0 ** (-torch.arange(half) / half)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], dim=-1)


class Counted(Rolling):
    """Its places are counted from the first token, however many are kept."""

    def start(self, state):
        return state["seen"]

    def forward(self, x, state=None):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        start = 0 if state is None else self.start(state)
        q, k = turned(q, start), turned(k, start)
        if state is not None:
            k, v = torch.cat([state["k"], k], 2), torch.cat([state["v"], v], 2)
        distance = torch.arange(k.shape[2] - x.shape[1], k.shape[2])[:, None] - torch.arange(k.shape[2])
        scores = q @ k.transpose(-2, -1) / sqrt(q.shape[-1])
        scores = scores.masked_fill((distance < 0) | (distance >= self.window), float("-inf"))
        context = (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
        seen = x.shape[1] + (0 if state is None else state["seen"])
        return self.out(context), {"k": k[:, :, -self.window :], "v": v[:, :, -self.window :], "seen": seen}


class Shortened(Counted):
    """They are counted from the first token that is kept."""

    def start(self, state):
        return state["k"].shape[2]


@pytest.mark.parametrize(("kind", "faults"), [(Counted, []), (Shortened, ["position-cache"])])
def test_places_are_not_counted_from_what_a_window_keeps(kind, faults):
    found = hw.doctor(kind)
    assert [fault.kind for fault in found.faults] == faults
    assert found.examined["cache"] is True


class CountedByDefault(Counted):
    """How many tokens are kept is a number that the class has by itself, under a name that tells nothing."""

    def __init__(self, width, heads, reach=64):
        super().__init__(width, heads, reach)


class ShortenedByDefault(Shortened):
    """The same, where places are counted from the first token that is kept."""

    def __init__(self, width, heads, reach=64):
        super().__init__(width, heads, reach)


@pytest.mark.parametrize(("kind", "faults"), [(CountedByDefault, []), (ShortenedByDefault, ["position-cache"])])
def test_a_number_that_a_class_has_by_itself_is_made_smaller_than_the_sequence(kind, faults):
    assert [fault.kind for fault in hw.doctor(kind).faults] == faults
