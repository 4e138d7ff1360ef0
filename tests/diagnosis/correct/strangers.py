"""What strangers' correct classes do that has been taken for a fault, or kept a class from being examined."""

import torch
import torch.nn.functional as F
from torch import nn


class Split(nn.Module):
    """Four projections; heads and back."""

    def __init__(self, dim, heads):
        super().__init__()
        if dim % heads:
            raise ValueError("heads must divide dim")
        self.heads = heads
        self.q, self.k = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.v, self.o = nn.Linear(dim, dim), nn.Linear(dim, dim)

    def split(self, x):
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def merge(self, x):
        return self.o(x.transpose(1, 2).flatten(2))

    def sides(self, x, context):
        return self.split(self.q(x)), self.split(self.k(context)), self.split(self.v(context))


class PaddedOnBothSides(Split):
    """The mask of tokens closes their rows as well: what padding looks at, nobody reads."""

    def forward(self, x, mask=None):
        q, k, v = self.sides(x, x)
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        if mask is not None:
            both = mask[:, None, :, None] & mask[:, None, None, :]
            scores = scores.masked_fill(~both, torch.finfo(scores.dtype).min)
        return self.merge(scores.softmax(-1) @ v)


class MaskForEach(Split):
    """The mask is of the queries where there is a context, whose mask is another argument."""

    def forward(self, x, context=None, mask=None, context_mask=None):
        seen = x if context is None else context
        q, k, v = self.sides(x, seen)
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        if mask is not None:
            keys = torch.ones(1, seen.shape[1], dtype=torch.bool) if context_mask is None else context_mask
            both = mask[:, None, :, None] & (mask if context is None else keys)[:, None, None, :]
            scores = scores.masked_fill(~both, torch.finfo(scores.dtype).min)
        return self.merge(scores.softmax(-1) @ v)


class MaskAsFlag(Split):
    """That there is a mask says that it is the causal one; torch makes it."""

    def forward(self, x, mask=None):
        q, k, v = self.sides(x, x)
        return self.merge(F.scaled_dot_product_attention(q, k, v, is_causal=mask is not None))


class RefusesMasks(Split):
    """An argument that is there for its family's sake, and is refused."""

    def forward(self, x, attn_mask=None):
        if attn_mask is not None:
            raise NotImplementedError
        q, k, v = self.sides(x, x)
        return self.merge((q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).softmax(-1) @ v)


class ReducedImage(Split):
    """The sides of the image are needed only where keys are reduced."""

    def __init__(self, dim, heads, ratio=1):
        super().__init__(dim, heads)
        self.ratio = ratio

    def forward(self, x, H, W):
        seen = x
        if self.ratio > 1:
            image = x.transpose(1, 2).reshape(len(x), -1, H, W)
            seen = F.avg_pool2d(image, self.ratio).flatten(2).transpose(1, 2)
        q, k, v = self.sides(x, seen)
        return self.merge((q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).softmax(-1) @ v)


class OverRows(Split):
    """The tokens of a column attend to each other; the batch is the third axis."""

    def forward(self, x):
        num_rows, num_cols, batch_size, dim = x.size()
        q, k, v = (each(x).view(num_rows, num_cols, batch_size, self.heads, -1) for each in (self.q, self.k, self.v))
        weights = torch.einsum("icbhd,jcbhd->hcbij", q, k).div(q.shape[-1] ** 0.5).softmax(-1)
        return self.o(torch.einsum("hcbij,jcbhd->icbhd", weights, v).reshape(num_rows, num_cols, batch_size, dim))


class MustHaveMask(Split):
    """The mask has a default that the code does not bear."""

    def forward(self, x, mask=None):
        q, k, v = (each.flatten(0, 1) for each in self.sides(x, x))
        hidden = mask.repeat_interleave(self.heads, dim=0)
        scores = torch.bmm(q, k.transpose(1, 2)) / q.shape[-1] ** 0.5
        out = torch.bmm(scores.masked_fill(hidden, float("-inf")).softmax(-1), v)
        return self.merge(out.unflatten(0, (-1, self.heads)))


class ShareOfSlots(Split):
    """Keys and values are written into room for more of them, and read back."""

    def __init__(self, dim, heads, max_batch_size=8, max_seq_len=64):
        super().__init__(dim, heads)
        self.cache = torch.zeros(2, max_batch_size, heads, max_seq_len, dim // heads)

    def forward(self, x, start_pos: int, mask=None):
        q, k, v = self.sides(x, x)
        self.cache = self.cache.to(q)
        end = start_pos + x.shape[1]
        self.cache[0, : len(x), :, start_pos:end] = k
        self.cache[1, : len(x), :, start_pos:end] = v
        keys, values = self.cache[0, : len(x), :, :end], self.cache[1, : len(x), :, :end]
        scores = q @ keys.transpose(-2, -1) / q.shape[-1] ** 0.5
        if mask is not None:
            scores = scores + mask
        return self.merge(scores.softmax(-1) @ values)


class WithPositions(Split):
    """r holds one row for each distance, with no batch, as its use alone tells."""

    def forward(self, x, r):
        q, k, v = self.sides(x, x)
        far = self.split(self.k(r)[None].expand(len(x), -1, -1))
        scores = (q @ k.transpose(-2, -1) + q @ far.transpose(-2, -1)) / q.shape[-1] ** 0.5
        return self.merge(scores.softmax(-1) @ v)


class Lazy(nn.Module):
    """The first call draws the weights."""

    def __init__(self, dim, heads):
        super().__init__()
        if dim % heads:
            raise ValueError("heads must divide dim")
        self.heads = heads
        self.q, self.k = nn.LazyLinear(dim), nn.LazyLinear(dim)
        self.v, self.o = nn.LazyLinear(dim), nn.LazyLinear(dim)

    def forward(self, query, key, value):
        q, k, v = (
            each(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for each, x in ((self.q, query), (self.k, key), (self.v, value))
        )
        weights = (q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).softmax(-1)
        return self.o((weights @ v).transpose(1, 2).flatten(2))
