"""More of them: copies of heads, selections that hang on the data, joins, sums and loops."""

import torch
import torch.nn.functional as F
from torch import nn


def copied_heads(k, n_rep):
    b, n_kv, s, d = k.shape
    expanded = k[:, :, None].expand(b, n_kv, n_rep, s, d).reshape(b, n_kv * n_rep, s, d)
    interleaved = k.repeat_interleave(n_rep, dim=1)
    tiled = k.repeat(1, n_rep, 1, 1)
    return expanded, interleaved, tiled


def grouped_queries(q, k):
    q = q.unflatten(1, (k.size(1), -1))
    scores = q @ k.unsqueeze(2).mT
    return scores.flatten(1, 2)


class OneKeyHead(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.q, self.kv = nn.Linear(dim, dim), nn.Linear(dim, 2 * (dim // heads))

    def forward(self, x):
        q = self.q(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k, v = self.kv(x).chunk(2, dim=-1)
        k = k.unsqueeze(1).expand(-1, self.heads, -1, -1)
        return (q @ k.mT).softmax(-1) @ v[:, None]


def best_keys(q, k, v, top=3):
    scores = q @ k.mT
    values, places = scores.topk(top, dim=-1)
    picked = v.unsqueeze(2).expand(-1, -1, q.size(2), -1, -1)
    picked = picked.gather(3, places.unsqueeze(-1).expand(-1, -1, -1, -1, v.size(-1)))
    return (values.softmax(-1).unsqueeze(-2) @ picked).squeeze(-2)


def only_real_tokens(x, keep):
    packed = x[keep]
    places = keep.nonzero()
    return packed, places


def winners(scores):
    first = scores.argmax(dim=-1)
    order = scores.sort(dim=-1, descending=True)
    return F.one_hot(first, scores.size(-1)), order.indices


def repeated_letters(scores, q, k):
    own = torch.einsum("bhii->bhi", scores)
    total = torch.einsum("bhii->h", scores)
    cross = torch.einsum("bhid,bhjd", q, k)
    return own, total, cross, torch.diagonal(scores, dim1=-2, dim2=-1)


def means(weights):
    heads = weights.mean(dim=1)
    kept = weights.mean(dim=1, keepdim=True)
    rows = weights.sum(-1)
    return heads, kept.squeeze(1), rows[..., None], weights.amax((2, 3))


def one_by_one(x, heads):
    width = x.size(-1) // heads
    outs = []
    for h in range(heads):
        q = x[:, :, h * width : (h + 1) * width]
        outs.append(q @ q.transpose(1, 2) @ q)
    return torch.stack(outs, dim=1), torch.cat(outs, dim=-1)


def written_into_place(q):
    out = torch.zeros_like(q)
    for h in range(q.size(1)):
        out[:, h] = q[:, h] * 2
    return out


def joined_lengths(q, k):
    both = torch.cat([q, k], dim=1)
    twice = torch.cat([q, q], dim=1)
    wide = torch.cat([q, q, q], dim=-1)
    return both @ both.mT, twice, wide


def turned_about(x, w):
    flat = x[0]
    return flat.T @ flat, flat.mT, x.flip(1), x.roll(1, dims=1), w.T, x.movedim(1, 0)


def shorter_and_longer(x):
    first, rest = x[:, :1], x[:, 1:]
    inputs = x[:, :-1]
    padded = F.pad(x, (0, 0, 1, 0))
    every_other = x[:, ::2]
    last = x[:, -1]
    return first, rest - inputs, padded, every_other, last.unsqueeze(1)


def linear_attention(q, k, v):
    q, k = F.elu(q) + 1, F.elu(k) + 1
    kv = k.mT @ v
    norm = q @ k.sum(dim=-2).unsqueeze(-1)
    return q @ kv / norm


class Linformer(nn.Module):
    def __init__(self, seq_len, k, dim):
        super().__init__()
        self.shrink = nn.Linear(seq_len, k, bias=False)
        self.to_q = nn.Linear(dim, dim)

    def forward(self, x):
        keys = self.shrink(x.transpose(1, 2)).transpose(1, 2)
        return (self.to_q(x) @ keys.mT).softmax(-1) @ keys


class TwoKindsOfWidth(nn.Module):
    def __init__(self, dim, heads, nope, rope):
        super().__init__()
        self.heads, self.nope, self.rope = heads, nope, rope
        self.q = nn.Linear(dim, heads * (nope + rope))
        self.kr = nn.Linear(dim, rope)

    def forward(self, x):
        q = self.q(x).view(*x.shape[:2], self.heads, self.nope + self.rope).transpose(1, 2)
        content, turning = q.split([self.nope, self.rope], dim=-1)
        shared = self.kr(x).unsqueeze(1)
        scores = turning @ shared.mT
        return torch.cat([content, shared.expand(-1, self.heads, -1, -1)], dim=-1), scores


def alibi(q, k):
    heads = q.size(1)
    slopes = 2.0 ** -torch.arange(1, heads + 1)
    distance = torch.arange(k.size(2))[None, :] - torch.arange(q.size(2))[:, None]
    bias = slopes[:, None, None] * distance
    return q @ k.mT + bias


def three_rounds(x):
    for _ in range(3):
        x = x + (x @ x.mT).softmax(-1) @ x
    return x


def square(q):
    scores = q @ q.transpose(-2, -1)
    return q.transpose(-2, -1) @ scores


class PooledKeys(nn.Module):
    def __init__(self, dim, stride):
        super().__init__()
        self.pool = nn.Conv1d(dim, dim, stride, stride)

    def forward(self, x):
        short = self.pool(x.transpose(1, 2)).transpose(1, 2)
        return x @ short.mT


def back_and_forth(x, heads):
    q = x.view(*x.shape[:2], heads, -1)
    q = q.permute(2, 0, 3, 1)
    q = q.swapaxes(0, 1)
    q = q.transpose(-1, -2)
    return q.permute(0, 2, 1, 3).contiguous().view(x.shape)


def half_as_heads(x, heads):
    x = x.view(x.size(0), x.size(1), 2, heads, -1)
    one, two = x.unbind(2)
    other = x.flatten(2, 3)
    return one * two, other.transpose(1, 2)


def outside_of_torch(scores, limit: float = 0.5):
    peak = scores.max().item()
    if peak > limit:
        scores = scores * (limit / peak)
    return scores.softmax(-1)


def sums_that_are_merged(q, k):
    both = torch.cat([q, k], dim=1)
    later = both[:, 1:]
    return both.flatten(0, 1), both.flatten(1), later.flatten(0, 1)


class LazyWidths(nn.Module):
    def __init__(self, heads, out):
        super().__init__()
        self.heads = heads
        self.q = nn.LazyLinear(out)

    def forward(self, x):
        return self.q(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)


class SplitIntoSums(nn.Module):
    def __init__(self, dim, heads, nope, rope):
        super().__init__()
        self.heads, self.nope, self.rope = heads, nope, rope
        self.up = nn.Linear(dim, heads * (nope + rope))

    def forward(self, x):
        q = self.up(x).unflatten(-1, (self.heads, -1))
        content, turning = q.split([self.nope, self.rope], dim=-1)
        return torch.cat([turning, content], dim=-1).flatten(2)
