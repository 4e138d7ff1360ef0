import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class Plain(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.d = heads, dim // heads
        self.q = nn.Linear(dim, dim)
        self.k = nn.Linear(dim, dim)
        self.v = nn.Linear(dim, dim)
        self.o = nn.Linear(dim, dim)

    def split(self, x):
        return x.view(x.shape[0], x.shape[1], self.heads, self.d).transpose(1, 2)

    def merge(self, x):
        return self.o(x.transpose(1, 2).reshape(x.shape[0], x.shape[2], -1))

    def scores(self, q, k):
        return q @ k.transpose(-2, -1) / math.sqrt(self.d)

    def weights(self, scores):
        return scores.softmax(-1)

    def forward(self, x):
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        return self.merge(self.weights(self.scores(q, k)) @ v)


class MuP(Plain):
    def scores(self, q, k):
        return q @ k.transpose(-2, -1) / self.d


class T5(Plain):
    def __init__(self, dim, heads):
        super().__init__(dim, heads)
        self.relative_attention_bias = nn.Embedding(32, heads)

    def scores(self, q, k):
        n, m = q.shape[2], k.shape[2]
        bucket = (torch.arange(m)[None, :] - torch.arange(n)[:, None]).abs().clamp(max=31)
        return q @ k.transpose(-2, -1) + self.relative_attention_bias(bucket).permute(2, 0, 1)


class LearnedTemperature(Plain):
    def __init__(self, dim, heads):
        super().__init__(dim, heads)
        self.temperature = nn.Parameter(torch.ones(heads, 1, 1))

    def scores(self, q, k):
        return q @ k.transpose(-2, -1) * self.temperature


class OneTemperature(Plain):
    def __init__(self, dim, heads):
        super().__init__(dim, heads)
        self.log_scale = nn.Parameter(torch.tensor(0.3))

    def scores(self, q, k):
        return q @ k.transpose(-2, -1) * self.log_scale.exp()


class SoftCap(Plain):
    def scores(self, q, k):
        s = q @ k.transpose(-2, -1) / math.sqrt(self.d)
        return 50.0 * torch.tanh(s / 50.0)


class QKNorm(Plain):
    def __init__(self, dim, heads):
        super().__init__(dim, heads)
        self.q_norm = nn.LayerNorm(self.d)
        self.k_norm = nn.LayerNorm(self.d)

    def scores(self, q, k):
        return self.q_norm(q) @ self.k_norm(k).transpose(-2, -1) * self.d**-0.5


class Cosine(Plain):
    def __init__(self, dim, heads):
        super().__init__(dim, heads)
        self.logit_scale = nn.Parameter(torch.log(10 * torch.ones((heads, 1, 1))))

    def scores(self, q, k):
        s = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-2, -1)
        return s * torch.clamp(self.logit_scale, max=math.log(100.0)).exp()


class CosineTen(Plain):
    def scores(self, q, k):
        return 10 * (F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-2, -1))


class PreScaled(Plain):
    def forward(self, x):
        q, k, v = self.split(self.q(x) * self.d**-0.5), self.split(self.k(x)), self.split(self.v(x))
        return self.merge((q @ k.transpose(-2, -1)).softmax(-1) @ v)


class QuarterScaled(Plain):
    def scores(self, q, k):
        return (q * self.d**-0.25) @ (k * self.d**-0.25).transpose(-2, -1)


class Alibi(Plain):
    def scores(self, q, k):
        n, m = q.shape[2], k.shape[2]
        slopes = 2.0 ** (-torch.arange(1, self.heads + 1) * 8 / self.heads)
        far = (torch.arange(m)[None, :] - torch.arange(n)[:, None]).abs()
        return super().scores(q, k) - slopes[:, None, None] * far


class RelativeTable(Plain):
    def __init__(self, dim, heads):
        super().__init__(dim, heads)
        self.table = nn.Parameter(torch.randn(2 * 64 - 1, heads) * 0.1)

    def scores(self, q, k):
        n = q.shape[2]
        place = torch.arange(n)[None, :] - torch.arange(n)[:, None] + 63
        return super().scores(q, k) + self.table[place].permute(2, 0, 1)


class ShawKeys(Plain):
    def __init__(self, dim, heads):
        super().__init__(dim, heads)
        self.relative = nn.Embedding(9, self.d)

    def scores(self, q, k):
        n = q.shape[2]
        place = (torch.arange(n)[None, :] - torch.arange(n)[:, None]).clamp(-4, 4) + 4
        extra = torch.einsum("bhid,ijd->bhij", q, self.relative(place))
        return (q @ k.transpose(-2, -1) + extra) / math.sqrt(self.d)


class RelativeShift(Plain):
    def __init__(self, dim, heads):
        super().__init__(dim, heads)
        self.r = nn.Linear(dim, dim, bias=False)
        self.u = nn.Parameter(torch.randn(heads, 1, self.d))
        self.w = nn.Parameter(torch.randn(heads, 1, self.d))

    def scores(self, q, k):
        b, h, n, d = q.shape
        angle = torch.arange(n - 1, -1, -1.0)[:, None] / 10 ** torch.linspace(0, 2, h * d)[None, :]
        r = self.r(angle.sin()).view(n, h, d).transpose(0, 1)
        place = (q + self.w) @ r.transpose(-2, -1)
        place = F.pad(place, (1, 0)).view(b, h, n + 1, n)[:, :, 1:].reshape(b, h, n, n)
        s = ((q + self.u) @ k.transpose(-2, -1) + place) / math.sqrt(d)
        return s.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), float("-inf"))


class Talking(Plain):
    def __init__(self, dim, heads):
        super().__init__(dim, heads)
        self.before = nn.Linear(heads, heads, bias=False)
        self.after = nn.Linear(heads, heads, bias=False)

    def weights(self, scores):
        scores = self.before(scores.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return self.after(scores.softmax(-1).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
