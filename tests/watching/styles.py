"""Attention as people write it out by hand, each with the weights that it computed as (B, H, Lq, Lk)."""

import math

import torch
import torch.nn.functional as F
from torch import nn

B, H, L, S, D = 3, 2, 5, 7, 4
E = H * D


class Projected(nn.Module):
    """Queries of x (B, L, E), keys and values of y (B, S, E); `attend` returns the context and the weights."""

    def __init__(self, attend, **options):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(E, E) for _ in range(4))
        self.attend, self.options, self.weights = attend, options, None

    def forward(self, x, y):
        # without a graph, as the weights outlive the call
        out, weights = self.attend(self, self.q(x), self.k(y), self.v(y), **self.options)
        self.weights = weights.detach().clone()
        return self.out(out)


def split(t):
    return t.view(t.shape[0], -1, H, D).transpose(1, 2)


def join(t):
    return t.transpose(1, 2).contiguous().view(t.shape[0], -1, E)


def textbook(_, q, k, v):
    q, k, v = split(q), split(k), split(v)
    weights = F.softmax(q @ k.transpose(-2, -1) / math.sqrt(D), dim=-1)
    return join(weights @ v), weights


def masked(_, q, k, v, *, mask, fill):
    q, k, v = split(q), split(k), split(v)
    scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(D)
    scores = scores.masked_fill(mask == 0, fill)
    weights = scores.softmax(dim=-1)
    return join(torch.matmul(F.dropout(weights, 0.3), v)), weights


def indexed(_, q, k, v, *, mask):
    q, k, v = split(q) * D**-0.5, split(k), split(v)
    scores = q @ k.mT
    scores[~mask.expand_as(scores)] = float("-inf")
    weights = torch.softmax(scores, -1)
    return join(weights @ v), weights


def added(_, q, k, v, *, bias):
    q, k, v = split(q), split(k), split(v)
    scores = torch.matmul(q, k.transpose(-1, -2))
    scores /= math.sqrt(D)
    scores += bias
    weights = nn.Softmax(dim=-1)(scores.float()).type_as(q)
    return join(weights @ v), weights


def chosen(_, q, k, v, *, mask):
    q, k, v = split(q), split(k), split(v)
    scores = torch.where(mask, torch.einsum("bhqd,bhkd->bhqk", q, k) * D**-0.5, torch.tensor(-1e30))
    weights = F.softmax(scores, dim=-1)
    return join(torch.einsum("bhqk,bhkd->bhqd", weights, v)), weights


def token_major(_, q, k, v):
    """[B, L, H, D], as in JAX."""
    q, k, v = (t.unflatten(-1, (H, D)) for t in (q, k, v))
    weights = torch.einsum("bqhd,bkhd->bhqk", q / math.sqrt(D), k).softmax(-1)
    return torch.einsum("bhqk,bkhd->bqhd", weights, v).flatten(-2), weights


def heads_last(_, q, k, v):
    q, k, v = (t.unflatten(-1, (H, D)) for t in (q, k, v))
    weights = torch.einsum("bqhd,bkhd->bqkh", q, k).mul(0.5).softmax(dim=2)
    return torch.einsum("bqkh,bkhd->bqhd", weights, v).flatten(-2), weights.permute(0, 3, 1, 2)


def keys_first(_, q, k, v):
    """Scores of keys by queries, and a product with the weights at its right."""
    q, k, v = split(q), split(k), split(v)
    weights = (k @ q.mT * 0.7).softmax(dim=-2)
    return join((v.mT @ weights).mT), weights.mT


def folded(_, q, k, v, *, valid):
    """d2l: heads in the batch, and a mask written into the rows of all scores."""
    q, k, v = (t.reshape(B, -1, H, D).permute(0, 2, 1, 3).reshape(B * H, -1, D) for t in (q, k, v))
    scores = torch.bmm(q, k.transpose(1, 2)) / math.sqrt(D)
    rows = scores.reshape(-1, scores.shape[-1])
    lengths = torch.repeat_interleave(torch.repeat_interleave(valid, H, dim=0), scores.shape[1])
    rows[~(torch.arange(rows.shape[1])[None] < lengths[:, None])] = -1e6
    weights = F.softmax(rows.reshape(scores.shape), dim=-1)
    out = torch.bmm(F.dropout(weights, 0.2), v)
    return out.reshape(B, H, -1, D).permute(0, 2, 1, 3).reshape(B, -1, E), weights.view(B, H, *weights.shape[1:])


def unfolded(_, q, k, v, *, mask):
    """fairseq: a batch of heads that is taken apart for the mask alone."""
    q, k, v = (t.transpose(0, 1).contiguous().view(-1, B * H, D).transpose(0, 1) for t in (q, k, v))
    scores = torch.bmm(q * D**-0.5, k.transpose(1, 2))
    scores = scores.view(B, H, *scores.shape[1:]).masked_fill(~mask, float("-inf")).view(B * H, *scores.shape[1:])
    weights = F.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype)
    out = torch.bmm(weights, v).transpose(0, 1).contiguous().view(-1, B, E).transpose(0, 1)
    return out, weights.view(B, H, *weights.shape[1:])


def alibi(_, q, k, v, *, bias):
    """BLOOM: baddbmm adds the bias, which has an axis for batch and heads, to scores without one to divide by."""
    q, k, v = (split(t).reshape(B * H, -1, D) for t in (q, k, v))
    scores = torch.baddbmm(bias.to(q), q, k.mT, beta=0.5, alpha=0.25)
    weights = scores.softmax(-1)
    return join(torch.bmm(weights, v).view(B, H, -1, D)), weights.view(B, H, *weights.shape[1:])


def capped(_, q, k, v, *, mask):
    """Gemma-2: tanh, then the mask."""
    q, k, v = split(q), split(k), split(v)
    scores = torch.tanh(q @ k.mT / math.sqrt(D) / 1.5) * 1.5
    weights = scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(-1)
    return join(weights @ v), weights


def tempered(_, q, k, v, *, temperature):
    """A temperature a head, as in Swin V2."""
    q, k, v = F.normalize(split(q), dim=-1), F.normalize(split(k), dim=-1), split(v)
    weights = (q @ k.mT * temperature.exp()).softmax(-1)
    return join(weights @ v), weights


def one_head(_, q, k, v):
    weights = torch.softmax(torch.bmm(q, k.transpose(1, 2)) / E**0.5, dim=2)
    return weights.bmm(v), weights[:, None]


def grouped(_, q, k, v):
    q, k, v = split(q), split(k)[:, :1], split(v)[:, :1]
    weights = (q @ k.mT).softmax(-1)
    return join(weights @ v), weights


# what no lazy map over q and k has, so that the scores themselves are kept
def floored(_, q, k, v):
    """A fault that learners make, and look for."""
    q, k, v = split(q), split(k), split(v)
    weights = F.softmax(torch.matmul(q, k.transpose(-1, -2)) // math.sqrt(D), dim=-1)
    return join(weights @ v), weights


def clamped(_, q, k, v):
    q, k, v = split(q), split(k), split(v)
    scores = q @ k.mT
    weights = (scores - scores.amax(-1, keepdim=True)).clamp(min=-1.0).softmax(-1)
    return join(weights @ v), weights


def shut_row(_, q, k, v, *, mask):
    """A row that may attend to nothing, which -1e9 makes even."""
    return masked(_, q, k, v, mask=mask, fill=-1e9)


def additive(module, q, k, v):
    """Bahdanau's, as in d2l."""
    features = torch.tanh(q.unsqueeze(2) + k.unsqueeze(1))
    weights = F.softmax(F.linear(features, module.out.weight[:1]).squeeze(-1), dim=-1)
    return torch.bmm(weights, v), weights[:, None]


def graph(_, q, k, v, *, mask):
    """Graph attention: two numbers a node meet in a sum."""
    scores = F.leaky_relu(q[..., :1] + k[..., :1].mT, 0.2)
    weights = F.softmax(torch.where(mask, scores, torch.tensor(-9e15)), dim=-1)
    return torch.matmul(weights, v), weights[:, None]


def clipped_later(_, q, k, v, *, mask):
    """ESPnet: the mask once more after the softmax."""
    q, k, v = split(q), split(k), split(v)
    scores = (q @ k.mT).masked_fill(~mask, torch.finfo(q.dtype).min)
    weights = torch.softmax(scores, dim=-1).masked_fill(~mask, 0.0)
    return join(weights @ v), weights


def swin(_, q, k, v, *, bias):
    """Windows in the batch, a bias for each."""
    q, k, v = split(q), split(k), split(v)
    scores = (q @ k.mT).view(1, B, H, q.shape[2], k.shape[2]) + bias[None]
    weights = scores.view(-1, H, q.shape[2], k.shape[2]).softmax(-1)
    return join(weights @ v), weights


generator = torch.Generator().manual_seed(5)
KEEP = torch.rand(B, 1, L, S, generator=generator) > 0.4
KEEP[..., 0] = True
PADDING = (torch.arange(S) < torch.tensor([4, 7, 2])[:, None])[:, None, None]
BIAS = torch.randn(B, H, L, S, generator=generator)
SHUT = KEEP.clone()
SHUT[1, :, 2] = False

LAZY = {
    "textbook": (textbook, {}),
    "masked by -1e9": (masked, {"mask": KEEP.long(), "fill": -1e9}),
    "masked by -inf": (masked, {"mask": PADDING, "fill": float("-inf")}),
    "masked by a square": (masked, {"mask": torch.ones(L, S).tril(2), "fill": -1e4}),
    "indexed": (indexed, {"mask": PADDING}),
    "added": (added, {"bias": (1.0 - PADDING.float()) * -10000.0}),
    "added, each its own": (added, {"bias": BIAS}),
    "chosen": (chosen, {"mask": KEEP}),
    "token major": (token_major, {}),
    "heads last": (heads_last, {}),
    "keys first": (keys_first, {}),
    "folded": (folded, {"valid": torch.tensor([4, 7, 2])}),
    "unfolded": (unfolded, {"mask": PADDING}),
    "alibi": (alibi, {"bias": BIAS.flatten(0, 1)[:, :1]}),
    "capped": (capped, {"mask": KEEP}),
    "tempered": (tempered, {"temperature": torch.tensor([0.3, 1.2]).view(H, 1, 1)}),
    "one head": (one_head, {}),
    "grouped": (grouped, {}),
    "swin": (swin, {"bias": BIAS}),
}
HELD = {
    "floored": (floored, {}),
    "clamped": (clamped, {}),
    "a shut row": (shut_row, {"mask": SHUT}),
    "masked too little": (masked, {"mask": KEEP, "fill": -8.0}),
    "additive": (additive, {}),
    "graph": (graph, {"mask": KEEP[:, 0]}),
}
