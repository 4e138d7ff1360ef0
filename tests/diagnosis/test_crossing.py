"""Attention that runs where there are as many keys as queries, and fails inside with a context of another length."""

import inspect
import json

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
        return tuple(each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in apart)


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


class Biased(Crossed):
    """A bias of the queries' length alone."""

    def forward(self, x, context):
        q, k, v = self.split(x, context)
        far = torch.arange(x.shape[1])
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5 - (far[:, None] - far).abs()
        return (scores.softmax(-1) @ v).transpose(1, 2).flatten(-2)


class Stacked(Crossed):
    def forward(self, x, context=None):
        x, context = torch.stack([x, x if context is None else context])
        q, k, v = self.split(x, context)
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        return (scores.softmax(-1) @ v).transpose(1, 2).flatten(-2)


class Refusing(Crossed):
    def forward(self, x, context):
        if context.shape != x.shape:
            raise ValueError(f"context must have the shape of x, {tuple(x.shape)}; got {tuple(context.shape)}")
        q, k, v = self.split(x, context)
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        return (scores.softmax(-1) @ v).transpose(1, 2).flatten(-2)


EQUAL = {"x": ["B", "L", "D"], "context": ["B", "L", "D"]}


@pytest.mark.parametrize(("kind", "line"), [(Biased, "scores = "), (Stacked, "x, context = torch.stack")])
@pytest.mark.parametrize("call", [None, {"x": [2, 5, 12], "context": [2, 5, 12]}], ids=["nothing declared", "numbers"])
def test_a_context_of_another_length_that_fails_before_the_weights_leaves_no_sound_verdict(kind, line, call):
    found = hw.doctor(kind, call=call)
    lines, first = inspect.getsourcelines(kind)
    at = next(first + place for place, each in enumerate(lines) if each.strip().startswith(line))
    assert found.verdict == "not examined"
    assert found.reason.startswith(f"With keys of another length than the queries it fails at line {at}: RuntimeError")
    assert json.dumps(EQUAL) in found.reason
    assert found.examined["cross"] == f"no: with more keys than queries it fails at line {at}"
    # with what it asks for
    assert hw.doctor(kind, call=EQUAL).verdict == "sound"


def test_code_that_refuses_a_context_of_another_length_is_sound_where_it_takes_one():
    found = hw.doctor(Refusing)
    assert (found.verdict, found.examined["cross"]) == ("sound", "no: it does not take more keys than queries")


class Mixed(Crossed):
    def forward(self, x, context):
        q, k, _ = self.split(x, x)
        v = self.split(x, context)[2]
        return ((q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).softmax(-1) @ v).transpose(1, 2).flatten(-2)


def test_keys_of_another_input_than_their_values_are_found_where_both_are_as_many():
    for call in (None, {"x": [2, 5, 12], "context": [2, 5, 12]}, EQUAL):
        (fault,) = hw.doctor(Mixed, call=call).faults
        assert fault.kind == "input-mixed"


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
    assert found.examined["order of keys"] is True or "mend the faults" in found.examined["order of keys"]


def test_a_number_beyond_float16_is_warned_of_where_its_fill_is_a_fault_too():
    (warning,) = [each for each in hw.doctor(Inverted).findings if each.severity == "warning" and "16" in each.what]
    assert "-1e9" in warning.what
