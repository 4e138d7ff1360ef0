"""Attention that runs where there are as many keys as queries, and fails inside with a context of another length."""

import pytest
import torch
from torch import nn

import headwise as hw


class Crossed(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.q, self.kv = heads, nn.Linear(dim, dim), nn.Linear(dim, 2 * dim)

    def split(self, x, context):
        context = x if context is None else context
        apart = (self.q(x), *self.kv(context).chunk(2, -1))
        return (each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in apart)


class EinsumSwapped(Crossed):
    def forward(self, x, context=None):
        q, k, v = self.split(x, context)
        scores = torch.einsum("b h i d, b h j d -> b h j i", q, k) / q.shape[-1] ** 0.5
        return torch.einsum("b h i j, b h j d -> b h i d", scores.softmax(-1), v).transpose(1, 2).flatten(-2)


class MatmulSwapped(Crossed):
    def forward(self, x, context=None):
        q, k, v = self.split(x, context)
        scores = k @ q.transpose(-2, -1) / q.shape[-1] ** 0.5
        return (scores.softmax(-1) @ v).transpose(1, 2).flatten(-2)


class Cut(Crossed):
    def forward(self, x, context=None):
        q, k, v = self.split(x, context)
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        return (scores.softmax(-1) @ v[:, :, : x.shape[1]]).transpose(1, 2).flatten(-2)


class Right(Crossed):
    def forward(self, x, context=None):
        q, k, v = self.split(x, context)
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        return (scores.softmax(-1) @ v).transpose(1, 2).flatten(-2)


@pytest.mark.parametrize("kind", [EinsumSwapped, MatmulSwapped])
def test_scores_with_keys_in_their_rows_are_found_where_they_are_made(kind):
    found = hw.doctor(kind)
    (fault,) = found.faults
    assert (found.verdict, fault.kind, fault.proved) == ("faulty", "scores-transposed", True)
    assert fault.source.strip().startswith("scores = ")
    assert "行是键" in hw.doctor(kind, lang="zh").faults[0].what


def test_a_context_of_another_length_that_fails_among_the_weights_leaves_no_sound_verdict():
    found = hw.doctor(Cut)
    (fault,) = found.faults
    assert (found.verdict, fault.kind) == ("faulty", "raises")
    assert fault.source.strip().startswith("return (scores.softmax(-1)")
    assert hw.doctor(Right).verdict == "sound"


class Inverted(Crossed):
    """mask: (B, 1, L, S), 1 where a query may attend, 0 where not."""

    def forward(self, q, k, v, mask=None):
        apart = (self.q(q), self.q(k), self.q(v))
        q, k, v = (each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in apart)
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        if mask is not None:
            scores = scores.masked_fill(mask == 1, -1e9)
        return (scores.softmax(-1) @ v).transpose(1, 2).flatten(-2)


def test_a_difference_by_a_fault_is_not_told_as_one_by_positions():
    found = hw.doctor(Inverted)
    assert "mask-inverted" in [each.kind for each in found.faults]
    assert found.examined["order of keys"] is True or "other faults come first" in found.examined["order of keys"]


def test_a_number_beyond_float16_is_warned_of_where_its_fill_is_a_fault_too():
    (warning,) = [each for each in hw.doctor(Inverted).findings if each.severity == "warning" and "16" in each.what]
    assert "-1e9" in warning.what
