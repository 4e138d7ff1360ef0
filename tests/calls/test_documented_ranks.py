"""What words say of the axes of arguments: which is the batch, and that lengths are shares."""

from typing import NamedTuple

import pytest
import torch
from torch import nn

from headwise.calls.finder import find


class Words(NamedTuple):
    """A docstring, and what a call gives for it."""

    said: str
    shape: list[str]


@pytest.mark.parametrize(
    "words",
    [
        Words("x: (rows, columns, batch, width)", ["L", "S", "B", "D"]),
        Words("x: (batch, rows, columns, width)", ["B", "L", "S", "D"]),
    ],
    ids=["batch third", "batch first"],
)
def test_the_batch_is_where_words_say(words):
    class Rows(nn.Module):
        __doc__ = words.said

        def __init__(self, width):
            super().__init__()
            self.three = nn.Linear(width, 3 * width)

        def forward(self, x):
            q, k, v = self.three(x).chunk(3, dim=-1)
            return (q @ k.mT * q.shape[-1] ** -0.5).softmax(-1) @ v

    shape = find(Rows, namespace={}).plans[0].call["x"]
    assert shape.index("B") == words.shape.index("B")
    assert len(shape) == 4


@pytest.mark.parametrize("says", ["relative lengths in (0, 1]", "how many steps each has"])
def test_lengths_are_shares_of_the_longest_where_words_say_so(says):
    class Pool(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.score = nn.Linear(width, 1)

        def forward(self, x, lengths=None):
            steps = torch.arange(x.shape[1])
            if lengths is not None:
                scale = x.shape[1] if lengths.is_floating_point() else 1
                hidden = steps >= (lengths * scale)[:, None]
                return (self.score(x).squeeze(-1).masked_fill(hidden, -1e9).softmax(-1)[..., None] * x).sum(1)
            return (self.score(x).softmax(1) * x).sum(1)

    Pool.__doc__ = f"x: (batch, steps, width); lengths: (batch,), {says}"
    plan = next(plan for plan in find(Pool, namespace={}).plans if plan.mask)
    lengths = plan.arguments(plan.sizes(0))[1]["lengths"]
    assert lengths.is_floating_point() == ("relative" in says)
    assert bool((lengths > 0).all())
    assert (float(lengths.max()) <= 1) == ("relative" in says)
