"""What strangers choose that has been taken for a fault: whom a token sees, how a layer projects, what is left over."""

import torch
import torch.nn.functional as F
from torch import nn

from tests.diagnosis.correct.strangers import Split


class Neighbours(Split):
    """A graph, in which each node sees itself as well: no row is empty."""

    def forward(self, x, adj):
        q, k, v = self.sides(x, x)
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        seen = (adj.unsqueeze(1) + torch.eye(x.shape[1])) > 0
        return self.merge(scores.masked_fill(~seen, float("-inf")).softmax(-1) @ v)


class FewBits(nn.Linear):
    """Weights of three values and one width, which is made of the weights."""

    def forward(self, x):
        width = self.weight.abs().mean()
        return F.linear(x, (self.weight / width).round().clamp(-1, 1)) * width


class FewBitsAttention(Split):
    """Each projection has a width of its own, which is no scale of the scores."""

    def __init__(self, dim, heads):
        super().__init__(dim, heads)
        self.q, self.k = FewBits(dim, dim, bias=False), FewBits(dim, dim, bias=False)

    def forward(self, x):
        q, k, v = self.sides(x, x)
        return self.merge((q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).softmax(-1) @ v)


class NonCausalAttention(Split):
    """Looks both ways, as its name says; torch's kernel is chosen where nothing is dropped."""

    def __init__(self, dim, heads, dropout):
        super().__init__(dim, heads)
        self.dropout, self.drop, self.fused = dropout, nn.Dropout(dropout), dropout == 0.0

    def forward(self, x):
        q, k, v = self.sides(x, x)
        if self.fused:
            return self.merge(F.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout))
        return self.merge(self.drop((q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).softmax(-1)) @ v)


class LeftOver(Split):
    """A layer that bears the name of a method, and that nothing could be put through."""

    def __init__(self, dim, heads):
        super().__init__(dim, heads)
        self.joined = nn.Linear(heads, 1)

    def joined(self, x):
        return x.transpose(1, 2).flatten(2)

    def forward(self, x):
        q, k, v = self.sides(x, x)
        return self.o(self.joined((q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).softmax(-1) @ v))


class Distances(Split):
    """One encoding for each distance, shifted to the places; keys as long as queries, with a mask that must be."""

    def rel_shift(self, x):
        count = x.shape[2]
        place = torch.arange(count)[None, :] - torch.arange(count)[:, None] + count - 1
        return x.gather(-1, place.expand(*x.shape[:2], -1, -1))

    def forward(self, query, key, value, pos_enc, mask):
        q, k, v = self.split(self.q(query)), self.split(self.k(key)), self.split(self.v(value))
        far = self.rel_shift(q @ self.split(self.k(pos_enc)).transpose(-2, -1))
        scores = (q @ k.transpose(-2, -1) + far) / q.shape[-1] ** 0.5
        closed = mask.unsqueeze(1).unsqueeze(2)
        weights = scores.masked_fill(closed, -1e4).softmax(-1).masked_fill(closed, 0.0)
        out = (weights @ v).transpose(1, 2).contiguous()
        return self.o(out.view(query.shape[0], -1, self.heads * q.shape[-1]))


class WholeTable(Split):
    """Takes its rows of a table of angles by where the first token stands; what came before is handed over."""

    def turned(self, x, table, start):
        pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
        return torch.view_as_real(pairs * table[start : start + x.shape[-2]]).flatten(-2)

    def forward(self, x, freqs_cis, start_pos=0, past_kv=None):
        q, k, v = self.sides(x, x)
        q, k = self.turned(q, freqs_cis, start_pos), self.turned(k, freqs_cis, start_pos)
        if past_kv is not None:
            k, v = torch.cat([past_kv[0], k], 2), torch.cat([past_kv[1], v], 2)
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1 + k.shape[2] - q.shape[2])
        return self.merge(scores.masked_fill(later, float("-inf")).softmax(-1) @ v), (k, v)
