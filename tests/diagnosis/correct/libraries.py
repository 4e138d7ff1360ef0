"""What correct classes of published libraries do that has been taken for a fault, or kept one from being examined."""

import torch
import torch.nn.functional as F
from torch import nn

from tests.diagnosis.correct.strangers import Split


class ByKeywords(Split):
    """torch's attention is called with keywords alone."""

    def forward(self, x):
        q, k, v = self.sides(x, x)
        return self.merge(F.scaled_dot_product_attention(query=q, key=k, value=v))


class ChoosingQueries(nn.Module):
    """Keys choose among queries; each query then shares out 1 over the keys that chose it."""

    def __init__(self, dim):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(dim, dim) for _ in range(4))

    def forward(self, slots, inputs):
        scores = self.q(slots) @ self.k(inputs).transpose(-2, -1) * slots.shape[-1] ** -0.5
        weights = scores.softmax(dim=-2)
        return self.o(weights / (weights.sum(dim=-1, keepdim=True) + 1.0) @ self.v(inputs))


class WordsAndEntities(Split):
    """Two kinds of tokens, joined: a mask has as many keys as both together."""

    def forward(self, words, entities, mask=None):
        q, k, v = self.sides(joined := torch.cat([words, entities], dim=1), joined)
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        if mask is not None:
            scores = scores + mask
        return self.merge(scores.softmax(-1) @ v)[:, : words.shape[1]]


class HandedOn(Split):
    """The constructor hands on whatever it is given."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.scale = (self.q.in_features // self.heads) ** -0.5

    def forward(self, x):
        q, k, v = self.sides(x, x)
        return self.merge((q @ k.transpose(-2, -1) * self.scale).softmax(-1) @ v)


class ByPlace(Split):
    """A layer is told its place among others, and looks up what it is to do there."""

    def __init__(self, dim, heads, layer_idx=None):
        super().__init__(dim, heads)
        self.looks_back = [True, False][layer_idx]

    def forward(self, x):
        q, k, v = self.sides(x, x)
        return self.merge(F.scaled_dot_product_attention(q, k, v, is_causal=self.looks_back))


class Shared(Split):
    """Keys and values are laid where later layers find them."""

    def forward(self, x, shared_kv: dict):
        q, k, v = self.sides(x, x)
        shared_kv["own"] = k, v
        return self.merge((q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).softmax(-1) @ v)


def process(attend, x, context=None):
    """What an attention is handed to: the context counts where it was built for one."""
    q, k, v = attend.sides(x, x)
    if attend.added is not None:
        more = attend.added(context)
        k, v = (torch.cat([attend.split(more), each], dim=2) for each in (k, v))
    y = attend.merge((q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).softmax(-1) @ v)
    if context is not None:
        return y, attend.out(context)
    return y


class WithOther(Split):
    """A processor does the work, and takes the context only where a width for it was given."""

    def __init__(self, dim, heads, added_dim=None):
        super().__init__(dim, heads)
        self.added = None if added_dim is None else nn.Linear(added_dim, dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, x, context=None):
        return process(self, x, context)


class LookingBack:
    """Another processor, which reads the flag."""

    def __call__(self, attend, x):
        q, k, v = attend.sides(x, x)
        return attend.merge(F.scaled_dot_product_attention(q, k, v, is_causal=attend.is_causal))


class Processed(Split):
    """The flag is kept for a processor that is not the one that runs."""

    def __init__(self, dim, heads, is_causal=False, processor=None):
        super().__init__(dim, heads)
        self.is_causal, self.processor = is_causal, processor or process
        self.added = None

    def forward(self, x):
        return self.processor(self, x)


class LatentKeys(nn.Module):
    """Keys are written in two parts into one tensor: what each head has, and what all share, with the angles."""

    def __init__(self, dim, num_heads, num_kv_heads=16, q_lora_rank=24, head_dim=8, v_head_dim=5):
        super().__init__()
        if num_heads != num_kv_heads:
            raise ValueError("each head has its own keys")
        self.heads, self.size, self.value_size = num_heads, head_dim, v_head_dim
        self.down, self.up = nn.Linear(dim, q_lora_rank), nn.Linear(q_lora_rank, num_heads * 2 * head_dim)
        self.shared = nn.Linear(dim, head_dim)
        self.latent, self.kv = nn.Linear(dim, 20), nn.Linear(20, num_heads * (head_dim + v_head_dim))
        self.out = nn.Linear(num_heads * v_head_dim, dim)

    def forward(self, x):
        q = self.up(self.down(x)).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        both = self.kv(self.latent(x)).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k, v = both.split([self.size, self.value_size], dim=-1)
        keys = both.new_empty(*both.shape[:-1], 2 * self.size)
        keys[..., : self.size].copy_(k)
        keys[..., self.size :].copy_(self.shared(x)[:, None].expand_as(k))
        weights = (q @ keys.transpose(-2, -1) * (2 * self.size) ** -0.5).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))


class Joined(Split):
    """Sequences lie one after the other, without a batch, and are told apart by where each ends."""

    def forward(self, x, cu_seqlens, max_seqlen=None):
        q, k, v = (each(x).unflatten(-1, (self.heads, -1)).transpose(0, 1) for each in (self.q, self.k, self.v))
        parts = [each.split(cu_seqlens.diff().tolist(), dim=1) for each in (q, k, v)]
        out = [(a @ b.transpose(-2, -1) / a.shape[-1] ** 0.5).softmax(-1) @ c for a, b, c in zip(*parts, strict=True)]
        return self.o(torch.cat(out, dim=1).transpose(0, 1).flatten(1))
