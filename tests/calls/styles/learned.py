"""Classes of strangers whose names tell nothing: what they need is told by how a call of them fails."""

import torch
import torch.nn as nn


class FiveAxes(nn.Module):
    """Attention within windows that are axes of their own, unpacked with what is no axis beside them."""

    def __init__(self, dim, window_size=5):
        super().__init__()
        self.window_size = window_size
        self.norm = nn.LayerNorm(dim)
        self.to_qkv = nn.Linear(dim, 3 * dim)
        self.bias = nn.Parameter(torch.zeros(window_size**2, window_size**2))

    def forward(self, x):
        b, rows, high, wide, _, device = *x.shape, x.device
        q, k, v = self.to_qkv(self.norm(x)).chunk(3, -1)
        q, k, v = (each.reshape(b * rows, high * wide, -1) for each in (q, k, v))
        scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5 + self.bias.to(device)
        return (scores.softmax(-1) @ v).reshape(x.shape)


class Untold(nn.Module):
    """Words of another language."""

    def __init__(self, anzahl, breite):
        super().__init__()
        self.anzahl = breite
        self.ein, self.aus = nn.Linear(anzahl, 3 * anzahl), nn.Linear(anzahl, anzahl)

    def forward(self, x):
        b, length, _ = x.shape
        q, k, v = (each.reshape(b, length, self.anzahl, -1).transpose(1, 2) for each in self.ein(x).chunk(3, -1))
        weights = (q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5).softmax(-1)
        return self.aus((weights @ v).transpose(1, 2).reshape(b, length, -1))


class NamedAsNumber(nn.Module):
    """A second input under a name that mostly is a number of heads."""

    def __init__(self, d_model):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(d_model, d_model) for _ in range(3))

    def forward(self, e, h):
        q, k, v = self.q(e), self.k(h), self.v(h)
        return (q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5).softmax(-1) @ v


class OwnGroups(nn.Module):
    """Two heads of keys, whatever the number of heads is."""

    def __init__(self, hidden_size, num_heads):
        super().__init__()
        self.n, self.g, self.hn = num_heads, 2, hidden_size // num_heads
        self.qkv = nn.Linear(hidden_size, hidden_size + 2 * self.g * self.hn)

    def forward(self, x):
        b, length, width = x.shape
        q, k, v = self.qkv(x).split([self.n * self.hn, self.g * self.hn, self.g * self.hn], dim=-1)
        q = q.view(b, length, self.n, self.hn).transpose(1, 2)
        k, v = (
            each.view(b, length, self.g, 1, self.hn)
            .expand(-1, -1, -1, self.n // self.g, -1)
            .reshape(b, length, self.g * (self.n // self.g), self.hn)
            .view(b, length, self.n, self.hn)
            .transpose(1, 2)
            for each in (k, v)
        )
        weights = (q @ k.transpose(-2, -1) * self.hn**-0.5).softmax(-1)
        return (weights @ v).transpose(1, 2).reshape(b, length, width)


class HeadsForLength(nn.Module):
    """Wrong: it takes the heads for the queries, so that no call of it is right but by chance."""

    def __init__(self, d_model, num_heads):
        super().__init__()
        self.h = num_heads
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.bias = nn.Parameter(torch.zeros(num_heads, 1))

    def forward(self, x):
        _, _, width = x.shape
        q, k, v = self.qkv(x).chunk(3, -1)
        return (q @ k.transpose(-2, -1) * width**-0.5 + self.bias).softmax(-1) @ v


class ViewedAcross(nn.Module):
    """Wrong: a view of what it laid out otherwise itself, which runs where an axis is one."""

    def __init__(self, d_model, n_vocab):
        super().__init__()
        self.words, self.qkv = nn.Embedding(n_vocab, d_model), nn.Linear(d_model, 3 * d_model)

    def forward(self, x):
        b, length, width = x.shape
        q, k, v = self.qkv(x).chunk(3, -1)
        k = k.view(b * length, width).view(b, length, width).transpose(1, 2).view(b, length, width)
        return (q @ k.transpose(-2, -1) * width**-0.5).softmax(-1) @ v


class Frames(nn.Module):
    """Wrong: rows and columns change places on the way out, so that the sum fails but in a square."""

    def __init__(self, channels, num_heads):
        super().__init__()
        self.heads, self.packed = num_heads, nn.Linear(channels, 3 * channels)

    def forward(self, x):
        b, c, f, h, w = x.shape
        lines = x.permute(0, 3, 4, 2, 1).reshape(b * h * w, f, c)
        q, k, v = self.packed(lines).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = (q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5).softmax(-1) @ v
        return x + y.transpose(1, 2).reshape(b, h, w, f, c).permute(0, 4, 3, 2, 1)


class BatchSecond(nn.Module):
    """Tokens first, as only a transposition tells; what it says of a batch is of what it made."""

    def __init__(self, d_model, num_heads):
        super().__init__()
        self.heads = num_heads
        self.ask, self.match, self.hold, self.join = (nn.Linear(d_model, d_model) for _ in range(4))

    def split(self, x, count):
        return x.view(count, -1, self.heads, x.shape[-1] // self.heads).transpose(1, 2)  # (batch, head, time, part)

    def forward(self, query, key, value):
        query, key, value = (each.transpose(0, 1) for each in (query, key, value))
        n = query.size(0)
        q, k, v = self.split(self.ask(query), n), self.split(self.match(key), n), self.split(self.hold(value), n)
        y = (q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5).softmax(-1) @ v
        return self.join(y.transpose(1, 2).flatten(2)).transpose(0, 1)
