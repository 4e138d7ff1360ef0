import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from tests.diagnosis.correct.scores import Plain


class Sink(Plain):
    def __init__(self, dim, heads):
        super().__init__(dim, heads)
        self.sinks = nn.Parameter(torch.randn(heads))

    def weights(self, scores):
        column = self.sinks.reshape(1, -1, 1, 1).expand(scores.shape[0], -1, scores.shape[2], 1)
        return torch.cat([scores, column], dim=-1).softmax(-1)[..., :-1]


class OffByOne(Plain):
    def weights(self, scores):
        top = scores.max(dim=-1, keepdim=True).values.clamp(min=0)
        e = (scores - top).exp()
        return e / (e.sum(-1, keepdim=True) + (-top).exp())


class ByHand(Plain):
    def weights(self, scores):
        e = (scores - scores.max(dim=-1, keepdim=True).values).exp()
        return e / e.sum(dim=-1, keepdim=True)


class Sigmoid(Plain):
    def weights(self, scores):
        return torch.sigmoid(scores - math.log(scores.shape[-1]))


class Relu(Plain):
    def weights(self, scores):
        return F.relu(scores) / scores.shape[-1]


class SquaredRelu(Plain):
    def weights(self, scores):
        return F.relu(scores).square()


class Linear(Plain):
    def forward(self, x):
        q, k, v = (self.split(each(x)) for each in (self.q, self.k, self.v))
        q, k = F.elu(q) + 1, F.elu(k) + 1
        state = torch.einsum("bhnd,bhne->bhde", k, v)
        norm = 1 / torch.einsum("bhnd,bhd->bhn", q, k.sum(dim=2))
        return self.merge(torch.einsum("bhnd,bhde,bhn->bhne", q, state, norm))


class Efficient(Plain):
    def forward(self, x):
        q, k, v = (self.split(each(x)) for each in (self.q, self.k, self.v))
        return self.merge(q.softmax(dim=-1) @ (k.softmax(dim=-2).transpose(-2, -1) @ v))


class Channels(Plain):
    """XCiT: channels attend to channels."""

    def __init__(self, dim, heads):
        super().__init__(dim, heads)
        self.temperature = nn.Parameter(torch.ones(heads, 1, 1))

    def forward(self, x):
        q, k, v = (self.split(each(x)).transpose(-2, -1) for each in (self.q, self.k, self.v))
        q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
        w = (q @ k.transpose(-2, -1) * self.temperature).softmax(-1)
        return self.merge((w @ v).transpose(-2, -1))


class Retention(Plain):
    def weights(self, scores):
        n = scores.shape[-1]
        far = torch.arange(n)[:, None] - torch.arange(n)[None, :]
        return scores * torch.where(far >= 0, 0.9 ** far.clamp(min=0), 0.0)


class Window(Plain):
    def weights(self, scores):
        n = scores.shape[-1]
        far = torch.arange(n)[:, None] - torch.arange(n)[None, :]
        return scores.masked_fill((far < 0) | (far > 2), float("-inf")).softmax(-1)


class TopK(Plain):
    def weights(self, scores):
        least = scores.topk(3, dim=-1).values[..., -1:]
        return scores.masked_fill(scores < least, float("-inf")).softmax(-1)


class Gated(Plain):
    def __init__(self, dim, heads):
        super().__init__(dim, heads)
        self.gate = nn.Linear(dim, dim)

    def forward(self, x):
        q, k, v, g = (self.split(each(x)) for each in (self.q, self.k, self.v, self.gate))
        return self.merge(g.sigmoid() * (self.weights(self.scores(q, k)) @ v))


class Differential(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.d = heads, dim // heads
        self.q, self.k = nn.Linear(dim, 2 * dim), nn.Linear(dim, 2 * dim)
        self.v, self.o = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.strength = nn.Parameter(torch.tensor(0.3))

    def forward(self, x):
        b, n, _ = x.shape
        q1, q2 = self.q(x).view(b, n, self.heads, 2 * self.d).transpose(1, 2).chunk(2, dim=-1)
        k1, k2 = self.k(x).view(b, n, self.heads, 2 * self.d).transpose(1, 2).chunk(2, dim=-1)
        v = self.v(x).view(b, n, self.heads, self.d).transpose(1, 2)
        first = (q1 @ k1.transpose(-2, -1) / self.d**0.5).softmax(-1)
        second = (q2 @ k2.transpose(-2, -1) / self.d**0.5).softmax(-1)
        out = (first - self.strength * second) @ v
        return self.o(out.transpose(1, 2).reshape(b, n, -1))
