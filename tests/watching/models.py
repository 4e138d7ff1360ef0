"""Small models written by hand, that call attention in all the ways that people do."""

import torch
import torch.nn.functional as F
from torch import nn

import headwise as hw


def heads(x, count=2):
    return x.unflatten(-1, (count, -1)).transpose(-3, -2)


class Attend(nn.Module):
    """Self-attention by F.scaled_dot_product_attention, with any of its options."""

    def __init__(self, **options):
        super().__init__()
        self.qkv = nn.Linear(12, 36)
        self.options = options

    def forward(self, x):
        q, k, v = (heads(t) for t in self.qkv(x).chunk(3, dim=-1))
        return F.scaled_dot_product_attention(q, k, v, **self.options).transpose(-3, -2).flatten(-2)


class Block(nn.Module):
    """Attention of its own, and a child's."""

    def __init__(self, **options):
        super().__init__()
        self.attn = Attend(**options)
        self.mix = nn.Sequential(nn.Linear(12, 12), nn.GELU())

    def forward(self, x):
        return self.mix(x + self.attn(x))


class Mixed(Block):
    """Attention of torch's own besides."""

    def __init__(self):
        super().__init__()
        self.own = nn.MultiheadAttention(12, 2, batch_first=True)

    def forward(self, y):
        return self.own(y, y, y, need_weights=False)[0] + super().forward(y)


class Model(nn.Module):
    """Two blocks in a list, then hw.attention in the forward of the model itself."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Block(is_causal=True), Block()])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        q = heads(x)
        return hw.attention(q, q, q).transpose(1, 2).flatten(2)


class Handmade(nn.Module):
    """A softmax that is none any more when it meets the values."""

    def forward(self, x):
        q = heads(x)
        return (torch.softmax(q @ q.mT, dim=-1).square() @ q).transpose(1, 2).flatten(2)


def x(*sizes, seed=0):
    return torch.randn(*(sizes or (3, 5)), 12, generator=torch.Generator().manual_seed(seed))


def made(kind=Model, **options):
    torch.manual_seed(4)
    return kind(**options)
