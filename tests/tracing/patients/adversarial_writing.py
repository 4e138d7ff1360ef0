"""Ways of writing: changes in place, failures that are caught, closures, hooks, weights by hand, masks for merged heads."""

import functools
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


def turned_in_place(q, k):
    k = k.clone()
    k.transpose_(-2, -1)
    scores = q @ k
    scores.unsqueeze_(1)
    scores.squeeze_(1)
    return scores


def out_of_a_buffer(q, k):
    buffer = torch.empty(q.size(0), q.size(1), k.size(1))
    torch.bmm(q, k.transpose(1, 2), out=buffer)
    total = torch.zeros(q.size(1), k.size(1))
    total.copy_(buffer[0])
    return buffer.add_(1.0), total


def tries_a_view(x, heads):
    q = x.unflatten(-1, (heads, -1)).transpose(1, 2)
    try:
        return q.view(q.size(0), -1)
    except RuntimeError:
        return q.transpose(1, 2).reshape(x.shape)


def doubled(function):
    @functools.wraps(function)
    def inner(*args):
        return function(*args) * 2

    return inner


@doubled
def decorated(q, k):
    def dot(a, b):
        return torch.einsum("...id,...jd->...ij", a, b)

    return (lambda t: t.softmax(-1))(dot(q, k))


class WithHook(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(dim, dim)
        self.q.register_forward_hook(self.split)

    def split(self, module, args, output):
        return output.unflatten(-1, (self.heads, -1))

    def forward(self, x):
        return self.q(x).transpose(1, 2)


class InProjection(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.weight = nn.Parameter(torch.randn(3 * embed_dim, embed_dim))
        self.out = nn.Parameter(torch.randn(embed_dim, embed_dim))

    def forward(self, x):
        wq, wk, wv = self.weight.chunk(3)
        q = F.linear(x, wq).unflatten(-1, (self.num_heads, -1))
        k = F.linear(x, wk)
        v = x @ wv.t()
        return torch.addmm(v[0], k[0], self.out), q


class CutWeight(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.proj = nn.Linear(embed_dim, embed_dim, bias=False)

    def forward(self, x):
        per_head = self.proj.weight.view(self.num_heads, -1, x.size(-1))
        q = torch.einsum("bld,hed->bhle", x, per_head)
        return q, x @ per_head[0].T


class Squared(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * x

    @staticmethod
    def backward(ctx, grad):
        return grad


def own_gradient(q, k):
    return Squared.apply(q @ k.mT)


def saved_memory(q, k):
    return checkpoint(lambda a, b: a @ b.mT, q, k, use_reentrant=False)


@dataclass
class Answer:
    out: torch.Tensor
    weights: torch.Tensor


def answered(q, k, v):
    match q.dim():
        case 4 if (scores := q @ k.mT).numel() > 0:
            weights = scores.softmax(-1)
        case _:
            weights = None
    return Answer(out=weights @ v, weights=weights)


def while_there_are_layers(x, layers):
    while layers:
        layers -= 1
        x = x + x.mean(1, keepdim=True)
    return x


def masks_for_merged_heads(scores, mask, heads):
    right = mask.repeat_interleave(heads, dim=0)
    wrong = mask.repeat(heads, 1, 1)
    also = mask.unsqueeze(1).expand(-1, heads, -1, -1).flatten(0, 1)
    return scores + right, scores + wrong, also


def merge_before_transpose(x, heads):
    x = x.unflatten(-1, (heads, -1))
    return x.reshape(x.size(0) * heads, x.size(1), -1)


def keys_by_view(k):
    b, h, s, d = k.shape
    return k.view(b, h, d, s)


def stacked_heads(x, heads):
    outs = torch.stack(x.chunk(heads, dim=-1))
    good = outs.permute(1, 2, 0, 3).flatten(2)
    wrong = outs.view(x.size(0), x.size(1), -1)
    return good, wrong


def neighbours_merged(x):
    b, n, c = x.shape
    return x.reshape(b, n // 2, 2 * c), x.reshape(b, n // 2, 2, c).mean(2)


def last_step(q, k, v):
    q = q[:, :, -1:]
    out = (q @ k.mT).softmax(-1) @ v
    return out[:, :, 0].flatten(1)


def similarity(q, k):
    near = F.cosine_similarity(q.unsqueeze(2), k.unsqueeze(1), dim=-1)
    far = torch.cdist(q, k)
    units = F.normalize(q, dim=-1)
    return near - far, units


def shuffled_heads(q, order):
    moved = q[:, order]
    same = q.index_select(1, order)
    return moved, same, torch.gather(q, 1, order[None, :, None, None].expand(q.shape))


def pairs_below(x):
    rows, columns = torch.tril_indices(x.size(1), x.size(1))
    return x[:, rows] * x[:, columns]


def spectrum(x):
    mixed = torch.fft.fft(torch.fft.fft(x, dim=-1), dim=-2).real
    return mixed, torch.fft.irfft(torch.fft.rfft(x, dim=1), n=x.size(1), dim=1)


def causal_from_the_end(q, k):
    n, s = q.size(-2), k.size(-2)
    allowed = torch.ones(n, s).tril(diagonal=s - n).bool()
    bias = torch.zeros(n, s).masked_fill_(allowed.logical_not(), -1e4)
    return torch.baddbmm(bias.expand(q.size(0), n, s), q, k.mT)


class DecoderLayer(nn.Module):
    def __init__(self, d_model, nhead):
        super().__init__()
        self.cross = nn.MultiheadAttention(d_model, nhead)
        self.layer = nn.TransformerEncoderLayer(d_model, nhead, 4 * d_model, batch_first=True)

    def forward(self, tgt, memory):
        tgt = self.layer(tgt).transpose(0, 1)
        out, weights = self.cross(tgt, memory.transpose(0, 1), memory.transpose(0, 1))
        return out.transpose(0, 1), weights


class LocalAndGlobal(nn.Module):
    def __init__(self, dim, local_heads, global_heads, head_dim):
        super().__init__()
        self.local_heads, self.global_heads = local_heads, global_heads
        self.q = nn.Linear(dim, (local_heads + global_heads) * head_dim)

    def forward(self, x):
        q = self.q(x).unflatten(-1, (self.local_heads + self.global_heads, -1)).transpose(1, 2)
        near, far = q.split([self.local_heads, self.global_heads], dim=1)
        return torch.cat([near.cumsum(2), far], dim=1).transpose(1, 2).flatten(2)


def mapped(q, k):
    return torch.vmap(lambda a, b: a @ b.T)(q, k)
