"""What published classes do, drawn at random, that has been taken for a fault."""

import torch
import torch.nn.functional as F
from torch import nn


class AlongAxes(nn.Module):
    """Queries compete for keys, whose shares each query then weighs: along which axes is said by number."""

    def __init__(self, dim, softmax_dim=1, mean_dim=2):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.scale, self.softmax_dim, self.mean_dim = dim**-0.5, softmax_dim, mean_dim

    def forward(self, slots, context):
        scores = self.q(slots) @ self.k(context).transpose(1, 2) * self.scale
        shares = scores.softmax(dim=self.softmax_dim)
        return F.normalize(shares + 1e-8, p=1, dim=self.mean_dim) @ self.v(context)


class Absorbed(nn.Module):
    """Queries meet the latents of which values are made: the root is that of the heads whose keys they stand for."""

    def __init__(self, d_model, num_heads, latent_dim):
        super().__init__()
        if d_model % num_heads:
            raise ValueError("num_heads must divide d_model")
        self.num_heads, self.head_dim = num_heads, d_model // num_heads
        self.down, self.up = nn.Linear(d_model, latent_dim), nn.Linear(latent_dim, d_model)
        self.q = nn.Linear(d_model, num_heads * latent_dim)
        self.out = nn.Linear(d_model, d_model)

    def forward(self, x):
        latent = self.down(x)
        q = self.q(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
        weights = (q @ latent.transpose(1, 2)[:, None] / self.head_dim**0.5).softmax(-1)
        v = self.up(latent).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
        return self.out((weights @ v).transpose(1, 2).flatten(2))


class OfVolumes(nn.Module):
    """Channels first, before three axes that a norm's weights ask for: they are made one, and many again."""

    def __init__(self, dim, heads, dim_head=64):
        super().__init__()
        self.heads, self.scale = heads, dim_head**-0.5
        self.gain = nn.Parameter(torch.ones(1, dim, 1, 1, 1))
        self.qkv = nn.Conv1d(dim, heads * dim_head * 3, 1, bias=False)
        self.out = nn.Conv1d(heads * dim_head, dim, 1)

    def forward(self, x):
        x = x / x.std(dim=1, keepdim=True) * self.gain
        q, k, v = (each.unflatten(1, (self.heads, -1)).mT for each in self.qkv(x.flatten(2)).chunk(3, dim=1))
        weights = (q * self.scale @ k.mT).softmax(-1)
        return self.out((weights @ v).mT.flatten(1, 2)).view(x.shape)


class ToItsOwn(nn.Module):
    """What a query finds is added to its own value: queries are as many as keys, or one; the mask is always given."""

    def __init__(self, d_in, d_k):
        super().__init__()
        self.q, self.k = nn.Linear(d_in, d_k), nn.Linear(d_in, d_k)
        self.scale = d_k**0.5

    def forward(self, q, k, v, mask):
        scores = (self.q(q) / self.scale @ self.k(k).mT).masked_fill(mask == 0, -1e9)
        return scores.softmax(-1) @ v + v


class WithoutByDefault(nn.Module):
    """Scores are weights unless the softmax is asked for: so it is meant."""

    def __init__(self, dim, heads, linear=True):
        super().__init__()
        if dim % heads:
            raise ValueError("heads must divide dim")
        self.heads, self.linear = heads, linear
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x):
        q, k, v = (each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in self.qkv(x).chunk(3, dim=-1))
        weights = q @ k.mT / q.shape[-1] ** 0.5
        if not self.linear:
            weights = weights.softmax(-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))


class KeptFlag(nn.Module):
    """The order of tokens comes with the mask; the flag is kept for those who inherit."""

    def __init__(self, dim, heads, is_causal=False):
        super().__init__()
        if dim % heads:
            raise ValueError("heads must divide dim")
        self.heads, self.is_causal = heads, is_causal
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x, attention_mask=None):
        q, k, v = (each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in self.qkv(x).chunk(3, dim=-1))
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if attention_mask is not None:
            scores = scores + attention_mask
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class MixedOnPurpose(nn.Module):
    """An option puts heads before tokens where they are joined, so that they mix, as decoders of Informer do."""

    def __init__(self, dim, heads, mix=True):
        super().__init__()
        if dim % heads:
            raise ValueError("heads must divide dim")
        self.heads, self.mix = heads, mix
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x):
        q, k, v = (each.unflatten(-1, (self.heads, -1)) for each in self.qkv(x).chunk(3, dim=-1))
        scores = torch.einsum("blhe,bshe->bhls", q, k) / q.shape[-1] ** 0.5
        y = torch.einsum("bhls,bshd->blhd", scores.softmax(-1), v)
        if self.mix:
            y = y.transpose(2, 1).contiguous()
        return self.out(y.reshape(x.shape))


class KeepsMemory(nn.Module):
    """What is kept is a memory that is looked at again, unless tokens are said to come one after another; what may be
    seen then is the mask's.
    """

    def __init__(self, dim, heads):
        super().__init__()
        if dim % heads:
            raise ValueError("heads must divide dim")
        self.heads, self.cache = heads, None
        self.q, self.k = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.v, self.out = nn.Linear(dim, dim), nn.Linear(dim, dim)

    def split(self, x):
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, x, memory=None, use_cache=False, causal=False, attention_mask=None):
        seen = x if memory is None else memory
        q = self.split(self.q(x))
        if causal or not self.cache:
            k, v = self.split(self.k(seen)), self.split(self.v(seen))
        if use_cache:
            if not self.cache:
                self.cache = {"k": k.clone(), "v": v.clone()}
            else:
                if causal:
                    self.cache = {"k": torch.cat([self.cache["k"], k], 2), "v": torch.cat([self.cache["v"], v], 2)}
                k, v = self.cache["k"], self.cache["v"]
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if attention_mask is not None:
            scores = scores.masked_fill(attention_mask == 0, float("-inf"))
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class InOneOfTwoWays(nn.Module):
    """How many frames there are is a number, which one of two ways of looking asks for."""

    def __init__(self, dim, heads, mode="places"):
        super().__init__()
        if dim % heads:
            raise ValueError("heads must divide dim")
        self.heads, self.mode = heads, mode
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x, seq_len=1):
        sides = (each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in self.qkv(x).chunk(3, dim=-1))
        if self.mode == "frames":
            sides = (each.unflatten(0, (-1, seq_len)).movedim(1, 3) for each in sides)
        q, k, v = sides
        y = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v
        y = y.movedim(3, 1).flatten(0, 1) if self.mode == "frames" else y
        return self.out(y.transpose(1, 2).flatten(2))
