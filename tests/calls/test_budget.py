"""A search takes no more work and memory than a person waits for, and builds what is small."""

import torch
from torch import nn

from headwise.calls.finder import find
from headwise.diagnosis.plans.small_sizes import MOST, small
from headwise.recording import spent


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x):
        batch, length, dim = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).reshape(batch, length, dim))


class Tower(nn.Module):
    """Its blocks are counted by a number that goes to another constructor first."""

    def __init__(self, dim, heads, n_blocks_deep):
        super().__init__()
        self.inner = Stack(dim, heads, n_blocks_deep)

    def forward(self, x):
        return self.inner(x)


class Stack(nn.Module):
    def __init__(self, dim, heads, often):
        super().__init__()
        self.blocks = nn.ModuleList([Attention(dim, heads) for _ in range(often)])

    def forward(self, x):
        for each in self.blocks:
            x = x + each(x)
        return x


class Windows(nn.Module):
    """Windows of an image as axes of their own: all sizes are multiplied."""

    def __init__(self, dim, window_size=7):
        super().__init__()
        self.attention, self.side = Attention(dim, 1), window_size
        self.places = nn.Parameter(torch.zeros(window_size**2, dim))

    def forward(self, x):
        batch, rows, columns, high, wide, dim = x.shape
        tokens = x.reshape(batch * rows * columns, high * wide, dim) + self.places
        return self.attention(tokens).view(x.shape)


class Factored(nn.Module):
    def __init__(self, n_factors, n_heads):
        super().__init__()
        self.attention = nn.MultiheadAttention(n_factors, n_heads, batch_first=True)

    def forward(self, x):
        return self.attention(x, x, x, need_weights=False)[0]


def test_what_is_made_as_often_as_a_number_says_is_made_twice():
    assert find(Tower, namespace=globals()).plans[0].init["n_blocks_deep"] == 2
    assert find(Stack, namespace=globals()).plans[0].init["often"] == 2


def test_a_width_that_torchs_layer_divides_by_heads_is_made_of_heads():
    (plan,) = find(Factored, namespace=globals()).plans
    assert plan.init == {"n_factors": "H*d", "n_heads": "H"}


def test_no_input_of_a_run_is_large_and_no_two_axes_are_alike():
    plan = find(Windows, namespace=globals()).plans[0]
    sizes = small(plan)
    made = plan.arguments(sizes)[1]["x"]
    assert made.dim() == 6
    assert made.numel() <= MOST
    assert len({sizes[each] for each in ("B", "n", "m", "window_size")}) == 4


def test_a_search_that_finds_nothing_ends_when_its_work_is_spent():
    def slow(x):
        for _ in range(1000):
            torch.ones(1)
        raise RuntimeError("never")

    def spending(work):
        begun = spent()
        assert not find(slow, namespace={}, work=work).plans
        return spent() - begun

    # a call of it is over 1000 units: one search that is over at once, and a last look at what came furthest
    assert spending(500) < 500 + 10 * 1000
    assert spending(20_000) > 2 * spending(500)
