"""Small pieces of attention whose sizes coincide or mislead, and whose splits and merges are right, odd or wrong."""

import math

import torch
import torch.nn.functional as F
from torch import nn


class FixedLengthBuffer(nn.Module):
    def __init__(self, dim, heads, max_len):
        super().__init__()
        self.heads = heads
        self.qk = nn.Linear(dim, 2 * dim)
        self.register_buffer("bias", torch.zeros(max_len, max_len))

    def forward(self, x):
        q, k = self.qk(x).chunk(2, -1)
        q = q.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k = k.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        return q @ k.mT + self.bias


class AsManyHeadsAsWidth(nn.Module):
    def __init__(self, num_heads):
        super().__init__()
        self.num_heads = self.head_dim = num_heads
        self.q = nn.Linear(num_heads * self.head_dim, num_heads * self.head_dim)
        self.o = nn.Linear(num_heads * self.head_dim, num_heads * self.head_dim)

    def forward(self, x):
        q = self.q(x).view(x.size(0), x.size(1), self.num_heads, self.head_dim).permute(0, 2, 1, 3)
        scores = q @ q.transpose(-2, -1)
        out = (scores @ q).permute(0, 2, 1, 3).reshape(x.shape)
        return self.o(out)


class SixtyFour(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.to_q = nn.Linear(dim, heads * 64)
        self.to_out = nn.Linear(heads * 64, dim)
        self.heads = heads

    def forward(self, x):
        q = self.to_q(x).view(*x.shape[:2], self.heads, 64).transpose(1, 2)
        scores = q @ q.mT / math.sqrt(64)
        return self.to_out((scores @ q).transpose(1, 2).flatten(2))


class EightHeads(nn.Module):
    def __init__(self, d_model, num_heads=8):
        super().__init__()
        self.q, self.o = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)

    def forward(self, x):
        b, n, c = x.shape
        q = self.q(x).reshape(b, n, 8, c // 8).transpose(1, 2)
        a = q @ q.mT
        return self.o((a @ q).transpose(1, 2).reshape(b, n, c))


class SevenLatents(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.latents = nn.Parameter(torch.randn(7, dim))
        self.slots = nn.Parameter(torch.randn(5, dim))

    def forward(self, x):
        kv = torch.cat([x, self.slots.expand(x.size(0), 5, -1)], dim=1)
        weights = (self.latents @ kv.mT).softmax(-1)
        return weights @ kv


class BiasKV(nn.Module):
    def __init__(self, embed_dim):
        super().__init__()
        self.bias_k = nn.Parameter(torch.zeros(1, 1, embed_dim))

    def forward(self, query, key):
        key = torch.cat([key, self.bias_k.repeat(key.size(0), 1, 1)], dim=1)
        key = torch.cat([key, key.new_zeros(key.size(0), 1, key.size(2))], dim=1)
        return torch.bmm(query, key.transpose(1, 2))


def cached(q, k, past_k):
    keys = torch.cat((past_k, k), dim=-2)
    return q @ keys.transpose(-1, -2)


def relative_shift(q, table):
    length = q.size(2)
    rel = q @ table.t()
    rel = F.pad(rel, (0, 1))
    flat = rel.flatten(2)
    flat = F.pad(flat, (0, length - 1))
    back = flat.view(*q.shape[:2], length + 1, 2 * length - 1)
    return back[:, :, :length, length - 1 :]


class PackedPerHead(nn.Module):
    def __init__(self, hidden_size, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.query_key_value = nn.Linear(hidden_size, 3 * hidden_size)

    def forward(self, x):
        mixed = self.query_key_value(x).view(*x.shape[:2], self.num_heads, -1)
        q, k, v = mixed.chunk(3, dim=-1)
        again = self.query_key_value(x).view(*x.shape[:2], self.num_heads, 3, -1)
        return again[..., 0, :].transpose(1, 2), q.transpose(1, 2)


class PackedByRole(nn.Module):
    def __init__(self, hidden_size, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(hidden_size, 3 * hidden_size)

    def forward(self, x):
        qkv = self.qkv(x)
        parts = qkv.reshape(*x.shape[:2], 3, self.num_heads, -1)
        thirds = qkv.reshape(*x.shape[:2], 3, -1)
        return parts.permute(2, 0, 3, 1, 4), thirds.unbind(2), qkv.chunk(3, -1)


def windows_by_unfold(x, window):
    return x.unfold(1, window, window)


def sliding_windows(k, window):
    padded = F.pad(k, (0, 0, window - 1, 0))
    near = padded.unfold(1, window, 1)
    inner = k.unfold(1, window, 1)
    return near.transpose(2, 3), inner


def windows_by_strides(x, window):
    b, n, c = x.shape
    return x.as_strided((b, n // window, window, c), (n * c, window * c, c, 1))


def odd_halves(x):
    half = x.shape[-1] // 2
    left, right = x[..., :half], x[..., half:]
    return torch.cat([right, left], dim=-1)


def pairs_of_neighbours(x):
    even, odd = x[..., 0::2], x[..., 1::2]
    turned = torch.stack((-odd, even), dim=-1)
    return turned.flatten(-2)


class Gated(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(2 * dim, dim)

    def forward(self, x):
        a, b = self.up(x).chunk(2, dim=-1)
        return self.down(a * torch.sigmoid(b))


def heads_into_batch(x, heads):
    x = x.unflatten(-1, (heads, -1))
    batch_first = x.transpose(1, 2).reshape(x.size(0) * heads, x.size(1), -1)
    heads_first = x.permute(2, 0, 1, 3).reshape(heads * x.size(0), x.size(1), -1)
    return batch_first, heads_first


def heads_into_batch_by_cat(x, heads):
    width = x.size(-1) // heads
    tall = torch.cat(torch.split(x, width, dim=-1), dim=0)
    return torch.cat(torch.split(tall, x.size(0), dim=0), dim=-1)


def merge_without_transpose(q, k, v):
    out = (q @ k.mT).softmax(-1) @ v
    return out.reshape(out.size(0), out.size(2), -1)


def split_without_transpose(x, heads):
    b, n, c = x.shape
    return x.view(b, heads, n, c // heads)


def split_of_transposed(x, heads):
    b, n, c = x.shape
    return x.transpose(1, 2).reshape(b, heads, n, c // heads)


def swapped_heads_and_batch(x, batch):
    return x.view(-1, batch, x.size(1), x.size(2))


def merge_width_before_heads(x):
    b, h, n, d = x.shape
    return x.permute(0, 2, 3, 1).reshape(b, n, d * h)


def flatten_of_wrong_axes(x):
    b, h, n, d = x.shape
    flat = x.flatten(1, 2)
    return flat.view(b, n, h, d)


def split_width_before_heads(x, heads):
    return x.view(*x.shape[:2], -1, heads).permute(0, 3, 1, 2)


def batch_taken_for_length(x):
    return x.view(x.size(1), x.size(0), x.size(2))


def batch_second_by_view(x, heads):
    b, n, c = x.shape
    return x.reshape(n, b * heads, c // heads).transpose(0, 1)


def wrong_and_undone(x, heads):
    b, n, c = x.shape
    q = x.view(b, heads, n, c // heads)
    return q.reshape(b, n, c)


def wrong_twice(x, heads):
    b, n, c = x.shape
    q = x.view(b, heads, n, c // heads)
    scores = q @ q.mT
    return q.transpose(1, 2).reshape(b, n, c), scores


def rows_of_all_heads(x, heads):
    b, n, c = x.shape
    rows = x.view(b, n * heads, c // heads)
    return rows.view(b, n, heads, c // heads).transpose(1, 2)
