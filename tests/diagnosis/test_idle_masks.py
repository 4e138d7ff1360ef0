"""Masks that a class makes itself: none that is read, or hides something at some length, is told."""

import math

import pytest
import torch
from torch import nn

from headwise import doctor


class Attention(nn.Module):
    """Attention of 2 heads over the last places, with a mask of its own."""

    def __init__(self, d_model):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(d_model, d_model) for _ in range(3))
        self.out = nn.Linear(d_model, d_model)

    def hidden(self, n):
        places = torch.arange(n)
        far = places[:, None] - places[None, :]
        return (far < 0) | (far >= 3)

    def forward(self, x):
        q, k, v = (each(x).unflatten(-1, (2, -1)).transpose(1, 2) for each in (self.q, self.k, self.v))
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        context = scores.masked_fill(self.hidden(x.shape[1]), -1e9).softmax(-1) @ v
        return self.out(context.transpose(1, 2).flatten(2))


class KeepsTheFirst(Attention):
    """The first two keys are always seen; in a short sequence nothing is far."""

    def hidden(self, n):
        places = torch.arange(n)
        far = places[:, None] - places[None, :] >= 9
        return (far & (places >= 2)) | (places[None, :] > places[:, None])


class ReadInside(Attention):
    """A function within reads the mask."""

    def hidden(self, n):
        far_mask = torch.ones(n, n, dtype=torch.bool).tril(-3)

        def both(later):
            return later | far_mask

        return both(torch.ones(n, n, dtype=torch.bool).triu(1))


class NeverMeets(Attention):
    def hidden(self, n):
        places = torch.arange(n)
        far = places[:, None] - places[None, :]
        return (far < 0) & (far >= 3)


class AlwaysMeets(Attention):
    def hidden(self, n):
        places = torch.arange(n)
        far = places[:, None] - places[None, :]
        seen = (far >= 0) | (far < 3)
        return ~seen


class Unread(Attention):
    def hidden(self, n):
        window_mask = torch.ones(n, n, dtype=torch.bool).tril(-3)  # noqa: F841  that it is not read is the fault
        return torch.zeros(n, n, dtype=torch.bool)


class UnreadPairs(Attention):
    """Under another name it is a mask all the same."""

    def hidden(self, n):
        visible = torch.arange(n)[:, None] >= torch.arange(n)  # noqa: F841  that it is not read is the fault
        return torch.zeros(n, n, dtype=torch.bool)


class UnreadRow(Attention):
    """One row of truth values is no mask of pairs."""

    def hidden(self, n):
        is_even = torch.arange(n) % 2 == 0  # noqa: F841  it is left over
        return torch.zeros(n, n, dtype=torch.bool)


class LeftOver(Attention):
    """What is hidden is what the mask that nobody reads describes."""

    def hidden(self, n):
        causal_mask = torch.ones(n, n, dtype=torch.bool).tril()  # noqa: F841  it is left over
        return torch.ones(n, n, dtype=torch.bool).triu(1)


class Blocks(Attention):
    """Blocks of 16 see themselves and the one before: in a short sequence everything is seen."""

    BLOCK = 16

    def hidden(self, n):
        block = torch.arange(n) // self.BLOCK
        same = block[:, None] == block[None, :]
        return ~(same | ((block[:, None] - block[None, :]).abs() == 1))


@pytest.mark.parametrize("kind", [Attention, KeepsTheFirst, ReadInside, LeftOver, UnreadRow, Blocks])
def test_a_mask_that_hides_something_at_some_length_is_right(kind):
    found = doctor(kind)
    assert (found.verdict, found.faults) == ("sound", ())


@pytest.mark.parametrize(
    ("kind", "told"),
    [(NeverMeets, "mask-unmet"), (AlwaysMeets, "mask-unmet"), (Unread, "mask-unused"), (UnreadPairs, "mask-unused")],
)
def test_a_mask_that_hides_nothing_is_told(kind, told):
    assert [each.kind for each in doctor(kind).faults] == [told]


class Wrapped(nn.Module):
    """What holds a layer of blocks writes no 16 of its own."""

    def __init__(self, d_model):
        super().__init__()
        self.layer = Blocks(d_model)

    def forward(self, x):
        return x + self.layer(x)


def test_the_numbers_of_a_layer_count_in_what_holds_it():
    found = doctor(Wrapped)
    assert (found.verdict, found.faults) == ("sound", ())
