"""Names, buffers and large numbers of correct classes that have been taken for a promise, or for more than rounding."""

import torch
from torch import nn

from tests.diagnosis.correct.strangers import Split


class NonCausalAttention(Split):
    """Its name says that it does not look back only."""

    def forward(self, x):
        q, k, v = self.sides(x, x)
        return self.merge((q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).softmax(-1) @ v)


class MaskedSelfAttention(Split):
    """Who calls it brings the order of tokens, in the mask."""

    def forward(self, x, mask):
        q, k, v = self.sides(x, x)
        scores = (q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).masked_fill(mask == 0, float("-inf"))
        return self.merge(scores.softmax(-1).nan_to_num() @ v)


class TriangleOnDemand(Split):
    """It keeps a triangle, and uses it where that is asked for."""

    def __init__(self, dim, heads, looks="both ways"):
        super().__init__(dim, heads)
        self.looks = looks
        self.register_buffer("triangle", torch.ones(64, 64).tril())

    def forward(self, x):
        q, k, v = self.sides(x, x)
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        if self.looks == "back":
            scores = scores.masked_fill(self.triangle[: x.shape[1], : x.shape[1]] == 0, float("-inf"))
        return self.merge(scores.softmax(-1) @ v)


class LargeInFloat32(Split):
    """Values of some hundreds in float32: another order of keys is another rounding."""

    def __init__(self, dim, heads):
        super().__init__(dim, heads)
        nn.init.normal_(self.v.weight, std=50.0)

    def forward(self, query, key, value):
        q, k = self.split(self.q(query)).float(), self.split(self.k(key)).float()
        weights = (q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).softmax(-1)
        return self.merge((weights @ self.split(self.v(value)).float()).to(query.dtype))


class GateOnDemand(Split):
    """It keeps a gate, and uses it where that is asked for."""

    def __init__(self, dim, heads, *, gated=False):
        super().__init__(dim, heads)
        self.gated, self.gate = gated, nn.Linear(dim, dim)

    def forward(self, x):
        q, k, v = self.sides(x, x)
        out = self.merge((q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).softmax(-1) @ v)
        return out * self.gate(x).sigmoid() if self.gated else out


class ProjectedByTheBlock(nn.Module):
    """Heads of attention. The output projection lives in the block around them."""

    def __init__(self, dim, heads):
        super().__init__()
        if dim % heads:
            raise ValueError("heads must divide dim")
        self.heads, self.parts = heads, nn.Linear(dim, 3 * dim)

    def forward(self, x):
        q, k, v = self.parts(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return ((q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).softmax(-1) @ v).transpose(1, 2).flatten(2)
