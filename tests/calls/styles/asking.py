"""Classes that ask for more than numbers, or for numbers of their own: modules, one of two flags, pairs, tables."""

import functools
import math

import torch
from torch import nn


class Inner(nn.Module):
    def __init__(self, dropout=0.1):
        super().__init__()
        self.drop = nn.Dropout(dropout)

    def forward(self, q, k, v):
        scores = torch.einsum("blhd,bshd->bhls", q, k) / math.sqrt(q.shape[-1])
        return torch.einsum("bhls,bshd->blhd", self.drop(scores.softmax(-1)), v), scores


class AsksForInner(nn.Module):
    """Another class of the file, and projections."""

    def __init__(self, engine, d_model, n_heads, to_q: nn.Module, out):
        super().__init__()
        self.heads = n_heads
        self.inside = engine
        self.first = to_q
        self.finish = out
        self.kv = nn.Linear(d_model, 2 * d_model)

    def forward(self, x, memory):
        q = self.first(x).unflatten(-1, (self.heads, -1))
        k, v = self.kv(memory).chunk(2, -1)
        k, v = (each.unflatten(-1, (self.heads, -1)) for each in (k, v))
        mixed, _ = self.inside(q, k, v)
        return self.finish(mixed.flatten(2))


class EitherOr(nn.Module):
    """Exactly one of two flags, and a switch in what it is configured by."""

    def __init__(self, args, dim, heads, to_self=False, to_other=False):
        super().__init__()
        assert to_self ^ to_other
        if args.sharded:
            raise NotImplementedError
        self.heads, self.qkv = heads, nn.Linear(dim, 3 * dim)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return ((q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])).softmax(-1) @ v).transpose(1, 2).flatten(2)


class PairBias(nn.Module):
    """A width that is None unless it is said, of features of pairs."""

    def __init__(self, dim, c_pair: int = None, heads: int = None):  # noqa: RUF013  as strangers write it
        super().__init__()
        self.heads, self.qkv, self.bias = heads, nn.Linear(dim, 3 * dim), nn.Linear(c_pair, heads)

    def forward(self, x, pair):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]) + self.bias(pair).permute(0, 3, 1, 2)
        return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)


class Packed(nn.Module):
    """Queries, keys and values of all heads in one tensor, channels before tokens."""

    def __init__(self, n_heads):
        super().__init__()
        self.n_heads = n_heads

    def forward(self, qkv):
        b, width, length = qkv.shape
        assert width % (3 * self.n_heads) == 0
        q, k, v = qkv.view(b, 3, self.n_heads, -1, length).transpose(-2, -1).unbind(1)
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        return (scores.softmax(-1) @ v).transpose(-2, -1).reshape(b, -1, length)


class Looked(nn.Module):
    """A table of pairs of places in a window, looked up with an argument."""

    def __init__(self, dim, window_size, num_heads):
        super().__init__()
        self.window_size, self.heads, self.qkv = window_size, num_heads, nn.Linear(dim, 3 * dim)
        self.table = nn.Parameter(torch.randn((2 * window_size[0] - 1) * (2 * window_size[1] - 1), num_heads))

    def forward(self, x, rpi):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        count = self.window_size[0] * self.window_size[1]
        bias = self.table[rpi.view(-1)].view(count, count, -1).permute(2, 0, 1)
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]) + bias
        return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)


class Timetable(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.register_buffer("places", torch.randn(1000, width))

    def forward(self, length):
        return self.places[:length]


class OwnSizes(nn.Module):
    """What it has by default fits its default width, and no other."""

    def __init__(self, d_model=144, num_heads=4, timetable=Timetable(144)):  # noqa: B008  as strangers write it
        super().__init__()
        self.heads, self.timetable = num_heads, timetable
        self.qkv, self.of_places = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)

    def forward(self, x):
        x = x + self.of_places(self.timetable(x.shape[1]))
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return ((q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])).softmax(-1) @ v).transpose(1, 2).flatten(2)


class Shown(nn.Module):
    """What it takes is only to be seen where it is used.

    >>> layer = Shown(24, (3, 7))
    >>> layer(torch.randn(2, 10, 21), torch.randn(2, 24)).shape
    """

    def __init__(self, a, b):
        super().__init__()
        if a != 8 * b[0]:
            raise ValueError("too much")
        self.heads, self.q, self.kv = b[0], nn.Linear(a, b[0] * b[1]), nn.Linear(b[0] * b[1], 2 * b[0] * b[1])

    def forward(self, c, e):
        q = self.q(e).unflatten(-1, (self.heads, 1, -1))
        k, v = (each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in self.kv(c).chunk(2, -1))
        return ((q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])).softmax(-1) @ v).flatten(1)


class 中文注意力(nn.Module):  # noqa: N801  a script without capitals
    def __init__(self, 输入维度, 头数):
        super().__init__()
        self.头数, self.q = 头数, nn.Linear(输入维度, 输入维度)

    def forward(self, 查询, 键, 值, 掩码=None):
        q, k, v = (self.q(each).unflatten(-1, (self.头数, -1)).transpose(1, 2) for each in (查询, 键, 值))
        分数 = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        if 掩码 is not None:
            分数 = 分数.masked_fill(掩码 == 0, float("-inf"))
        return (分数.softmax(-1) @ v).transpose(1, 2).flatten(2)


四头 = functools.partial(中文注意力, 头数=4)


class OtherCount(nn.Module):
    """Its own method is given more than it takes."""

    def __init__(self, hidden_size, num_heads):
        super().__init__()
        self.heads, self.q = num_heads, nn.Linear(hidden_size, hidden_size)

    def split(self, x):
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, x):
        q = self.split(self.q(x), x.shape[0])
        return (q @ q.transpose(-2, -1)).softmax(-1) @ q


class WholeWidths(nn.Module):
    """Each head is seen as wide as the whole."""

    def __init__(self, d_model, num_heads):
        super().__init__()
        self.heads, self.width, self.q = num_heads, d_model, nn.Linear(d_model, d_model)

    def split(self, x):
        b, length, _ = x.shape
        return x.view(b, length, self.heads, self.width).transpose(1, 2)

    def forward(self, q, k):
        q, k = self.split(self.q(q)), self.split(self.q(k))
        return (q @ k.transpose(-2, -1)).softmax(-1) @ k


class Volume(nn.Module):
    """A window of three sides, and a table of what is between its places."""

    def __init__(self, dim, window_size, num_heads):
        super().__init__()
        self.heads, self.packed, self.join = num_heads, nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        places = window_size[0] * window_size[1] * window_size[2]
        self.bias = nn.Parameter(torch.zeros(num_heads, places, places))

    def forward(self, x):
        q, k, v = self.packed(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        weights = (q @ k.mT / math.sqrt(q.shape[-1]) + self.bias).softmax(-1)
        return self.join((weights @ v).transpose(1, 2).flatten(2))


class Requires(nn.Module):
    """An argument that is None by default and must be given: `scale` by this class."""

    def __init__(self, dim, num_heads, scale=None):
        super().__init__()
        if scale is None:
            raise ValueError("scale is required")
        self.heads, self.scale, self.packed = num_heads, scale, nn.Linear(dim, 3 * dim)

    def forward(self, x):
        q, k, v = self.packed(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return ((q @ k.mT * self.scale).softmax(-1) @ v).transpose(1, 2).flatten(2)


class RequiresNonzero(Requires):
    """A scale whose error comes after the one for None."""

    def __init__(self, dim, num_heads, scale=None):
        super().__init__(dim, num_heads, scale)
        assert self.scale != 0


class RequiresWindow(Requires):
    """A window that must be given."""

    def __init__(self, dim, num_heads, window=None):
        super().__init__(dim, num_heads, num_heads**-0.5)
        assert window is not None
        self.window = window


class RequiresBias(Requires):
    """A switch that must be given."""

    def __init__(self, dim, num_heads, qkv_bias=None):
        super().__init__(dim, num_heads, (dim // num_heads) ** -0.5)
        assert qkv_bias is not None
        self.packed = nn.Linear(dim, 3 * dim, bias=qkv_bias)


class RequiresWeightedBias(RequiresBias):
    """A number named as a switch is."""

    def __init__(self, dim, num_heads, qkv_bias=None):
        assert qkv_bias is not None
        super().__init__(dim, num_heads, 0.5 * qkv_bias)


class RequiresRate(Requires):
    """A rate that must be given."""

    def __init__(self, dim, num_heads, attn_drop=None):
        super().__init__(dim, num_heads, (dim // num_heads) ** -0.5)
        assert attn_drop is not None
        self.drop = nn.Dropout(attn_drop)
