"""Scores of T5 have no scale, whether the bias by distance is added to them or left out between two inputs."""

import pytest
from torch import arange, nn

import headwise as hw


class Bucketed(nn.Module):
    """Tokens attend to each other with a bias for each distance, or to those of another input without."""

    def __init__(self, width, heads, head_width, buckets=32):
        super().__init__()
        self.heads, self.buckets = heads, buckets
        self.q, self.k, self.v = (nn.Linear(width, heads * head_width, bias=False) for _ in range(3))
        self.out = nn.Linear(heads * head_width, width, bias=False)
        self.bias = nn.Embedding(buckets, heads)

    def split(self, x):
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, hidden_states, key_value_states=None):
        memory = hidden_states if key_value_states is None else key_value_states
        q, k, v = self.split(self.q(hidden_states)), self.split(self.k(memory)), self.split(self.v(memory))
        scores = q @ k.transpose(-2, -1)
        if key_value_states is None:
            distance = (arange(q.shape[2])[:, None] - arange(k.shape[2])).clamp(-15, 15) + 15
            scores = scores + self.bias(distance).permute(2, 0, 1)
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class Plain(Bucketed):
    """No bias at all."""

    def __init__(self, width, heads, head_width):
        super().__init__(width, heads, head_width)
        del self.bias

    def forward(self, hidden_states, key_value_states=None):
        return super().forward(hidden_states, hidden_states if key_value_states is None else key_value_states)


@pytest.mark.parametrize(("kind", "faults"), [(Bucketed, []), (Plain, ["scale-missing"])])
def test_a_call_with_two_inputs_leaves_the_table_of_distances_unread(kind, faults):
    assert [fault.kind for fault in hw.doctor(kind).faults] == faults


class FromTheEnd(Bucketed):
    """Queries lie at the end of the keys, of which a mask tells the real ones.

    mask: (batch, keys) bool, True = attend.
    """

    def forward(self, hidden_states, mask=None, key_value_states=None):
        memory = hidden_states if key_value_states is None else key_value_states
        q, k, v = self.split(self.q(hidden_states)), self.split(self.k(memory)), self.split(self.v(memory))
        queries, keys = q.shape[2], k.shape[2]
        distance = (arange(keys - queries, keys)[:, None] - arange(keys)).clamp(-15, 15) + 15
        scores = q @ k.transpose(-2, -1) + self.bias(distance).permute(2, 0, 1)
        if mask is not None:
            scores = scores.masked_fill(~mask[:, None, None], -1e4)
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


def test_places_that_are_counted_from_the_last_key_see_no_padding():
    report = hw.doctor(FromTheEnd)
    assert (report.verdict, [fault.kind for fault in report.faults]) == ("sound", [])
