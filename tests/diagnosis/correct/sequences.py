"""What correct layers for sound and long texts do: windows that are filled up, places beside tokens, tokens before."""

import torch
import torch.nn.functional as F
from torch import nn

from tests.diagnosis.correct.strangers import Split


class ValuesOfBefore(Split):
    """Half of what a token gives is of the token before it."""

    def __init__(self, dim, heads):
        super().__init__(2 * dim, heads)
        self.q, self.k = nn.Linear(dim, 2 * dim), nn.Linear(dim, 2 * dim)
        self.v, self.before, self.o = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(2 * dim, dim)

    def forward(self, x):
        earlier = torch.cat([x.new_zeros(len(x), 1, x.shape[-1]), x[:, :-1]], dim=1)
        v = self.split(torch.cat([self.v(x), self.before(earlier)], dim=-1))
        q, k = self.split(self.q(x)), self.split(self.k(x))
        return self.merge((q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).softmax(-1) @ v)


class TurnedInWindows(Split):
    """Windows are filled up, and places are counted within each."""

    def __init__(self, dim, heads, window):
        super().__init__(dim, heads)
        self.window = window

    def turned(self, x):
        angles = torch.arange(self.window)[:, None] * 0.3 ** torch.arange(x.shape[-1] // 2)
        a, b = x.chunk(2, dim=-1)
        return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], dim=-1)

    def forward(self, x):
        length = x.shape[1]
        x = F.pad(x, (0, 0, 0, -length % self.window))
        q, k, v = (each.unflatten(2, (-1, self.window)) for each in self.sides(x, x))
        scores = self.turned(q) @ self.turned(k).transpose(-2, -1) / q.shape[-1] ** 0.5
        is_there = (torch.arange(x.shape[1]) < length).view(-1, 1, self.window)
        out = scores.masked_fill(~is_there, -1e9).softmax(-1) @ v
        return self.merge(out.flatten(2, 3))[:, :length]


class TurnedThenAlike(Split):
    """Values are taken into the kind and onto the device of what is turned already, and are not turned by it."""

    def turned(self, x):
        angles = torch.arange(x.shape[-2])[:, None] * 0.3 ** torch.arange(x.shape[-1] // 2)
        a, b = x.chunk(2, dim=-1)
        return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], dim=-1)

    def forward(self, x):
        q, k, v = self.sides(x, x)
        q, k = self.turned(q), self.turned(k)
        v = v.to(q)
        return self.merge((q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).softmax(-1).type_as(v) @ v)


class AfterEarlierTokens(nn.Module):
    """Samples lie behind tokens, in masks too, and earlier tokens may come in front."""

    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.q, self.kv, self.o = nn.Linear(dim, dim), nn.Linear(dim, 2 * dim), nn.Linear(dim, dim)

    def forward(self, h, attn_mask=None, mems=None):
        seen = h if mems is None else torch.cat([mems, h], dim=0)
        q, (k, v) = self.q(h), self.kv(seen).chunk(2, dim=-1)
        q, k, v = (each.unflatten(-1, (self.heads, -1)) for each in (q, k, v))
        scores = torch.einsum("ibnd,jbnd->ijbn", q, k) / q.shape[-1] ** 0.5
        if attn_mask is not None and attn_mask.dim() == 2:
            scores = scores.masked_fill(attn_mask[None, :, :, None], float("-inf"))
        elif attn_mask is not None and attn_mask.dim() == 3:
            scores = scores.masked_fill(attn_mask[:, :, :, None], float("-inf"))
        return self.o(torch.einsum("ijbn,jbnd->ibnd", scores.softmax(dim=1), v).flatten(2))


class LooksBackAndAtAMemory(nn.Module):
    """A flag asks tokens to look back; all of the memory is seen with it too."""

    def __init__(self, dim, heads):
        super().__init__()
        self.itself, self.other = Split(dim, heads), Split(dim, heads)

    def attend(self, part, x, source, is_causal):
        q, k, v = part.sides(x, source)
        return x + part.merge(F.scaled_dot_product_attention(q, k, v, is_causal=is_causal))

    def forward(self, x, memory, is_causal=False):
        return self.attend(self.other, self.attend(self.itself, x, x, is_causal), memory, False)


class PlacesFirst(Split):
    """The product with places is made first, and tokens' own is added to it; the places are all samples'."""

    def __init__(self, dim, heads):
        super().__init__(dim, heads)
        self.places = nn.Linear(dim, dim, bias=False)

    def forward(self, x, pos_emb):
        q, k, v = self.sides(x, x)
        at = self.places(pos_emb).reshape(-1, self.heads, q.shape[-1])[: x.shape[1]]
        scores = q @ at.permute(1, 2, 0) + q @ k.transpose(-2, -1)
        return self.merge((scores / q.shape[-1] ** 0.5).softmax(-1) @ v)


class NothingSharedOut(Split):
    """No softmax: weights fall with the distance, and tokens that the mask closes are nothing."""

    def forward(self, x, mask=None):
        sides = [F.silu(each) for each in (self.q(x), self.k(x), self.v(x))]
        if mask is not None:
            sides = [each * mask[:, :, None] for each in sides]
        q, k, v = (self.split(each) for each in sides)
        places = torch.arange(x.shape[1])
        falling = (0.5 ** (places[:, None] - places)).tril()
        return self.merge((q @ k.transpose(-2, -1)) / q.shape[-1] ** 0.5 * falling @ v)


class MasksByName(Split):
    """One argument holds several masks, each under its name."""

    def forward(self, x, attention_mask: dict[str, torch.Tensor] | None = None):
        hides = (attention_mask or {}).get("keys")
        q, k, v = self.sides(x, x)
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        if hides is not None:
            scores = scores.masked_fill(hides[:, None, None], -1e9)
        return self.merge(scores.softmax(-1) @ v)


class PlacesOfAllKeys(Split):
    """With a cache the places are those of all keys, not of the new tokens alone."""

    def forward(self, x, pos_emb, cache=None):
        q, k, v = self.sides(x, x)
        if cache is not None:
            k, v = torch.cat([cache[0], k], dim=2), torch.cat([cache[1], v], dim=2)
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        lately = torch.ones(x.shape[1], k.shape[2], dtype=torch.bool).tril(k.shape[2] - x.shape[1])
        near = (q @ self.split(pos_emb).transpose(-2, -1))[..., : k.shape[2]]
        scores = torch.cat([near, near.new_zeros(*near.shape[:-1], k.shape[2] - near.shape[-1])], dim=-1) + scores
        return self.merge(scores.masked_fill(~lately, -1e9).softmax(-1) @ v), (k, v)


class TwoKindsOfKeys(Split):
    """One softmax runs over keys of two inputs, and is summed apart; the mask is for the first of them."""

    def forward(self, x, memory, attention_mask):
        q, k, v = self.sides(x, x)
        far_k, far_v = self.split(self.k(memory)), self.split(self.v(memory))
        near, far = q @ k.transpose(-2, -1), q @ far_k.transpose(-2, -1)
        hides = F.pad(attention_mask[:, None, None], (far.shape[-1], 0))
        weights = (torch.cat([far, near], dim=-1) / q.shape[-1] ** 0.5 + hides).softmax(-1)
        return self.merge(weights[..., : far.shape[-1]] @ far_v + weights[..., far.shape[-1] :] @ v)


class FewerKeys(Split):
    """Keys are made of four tokens each: whoever has a mask for them knows how many they are."""

    def __init__(self, dim, heads):
        super().__init__(dim, heads)
        self.fewer = nn.Conv2d(dim, dim, 2, stride=2)

    def forward(self, x, height, width, attention_mask=None):
        seen = self.fewer(x.transpose(1, 2).reshape(len(x), -1, height, width)).flatten(2).transpose(1, 2)
        q, k, v = self.sides(x, seen)
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        if attention_mask is not None:
            scores = scores + attention_mask
        return self.merge(scores.softmax(-1) @ v)


class Mutual(Split):
    """Tokens choose among slots and slots among tokens, by the same scores."""

    def forward(self, x, slots, mask):
        q, k, v = self.sides(x, slots)
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5 + mask
        to_slots = torch.einsum("bhts,bhtd->bhsd", scores.softmax(dim=-1), self.split(self.v(x)))
        return self.merge(scores.softmax(dim=-2) @ v), self.merge(to_slots)
