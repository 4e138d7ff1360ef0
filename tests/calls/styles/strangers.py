"""Classes as strangers write them, each of which was once called wrongly."""

import torch
import torch.nn.functional as F
from torch import nn


class StreamingCache(nn.Module):
    def __init__(self, dim, n_heads, max_seq_len=64, largest_batch=8):
        super().__init__()
        self.n_heads, self.hd = n_heads, dim // n_heads
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(dim, dim, bias=False) for _ in "qkvo")
        self.cache_k = torch.zeros(largest_batch, max_seq_len, n_heads, self.hd)
        self.cache_v = torch.zeros(largest_batch, max_seq_len, n_heads, self.hd)

    def forward(self, x, start_pos: int):
        b, s, _ = x.shape
        q, k, v = (w(x).view(b, s, self.n_heads, self.hd) for w in (self.wq, self.wk, self.wv))
        self.cache_k[:b, start_pos : start_pos + s] = k
        self.cache_v[:b, start_pos : start_pos + s] = v
        k, v = self.cache_k[:b, : start_pos + s], self.cache_v[:b, : start_pos + s]
        w = (q.transpose(1, 2) @ k.permute(0, 2, 3, 1)).softmax(-1)
        return self.wo((w @ v.transpose(1, 2)).transpose(1, 2).flatten(2))


class ChannelWeights(nn.Module):
    def __init__(self, k_size=3):
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.conv = nn.Conv1d(1, 1, kernel_size=k_size, padding=(k_size - 1) // 2, bias=False)

    def forward(self, x):
        y = self.pool(x)
        y = self.conv(y.squeeze(-1).transpose(-1, -2)).transpose(-1, -2).unsqueeze(-1)
        return x * y.sigmoid().expand_as(x)


class TwoLanguages(nn.Module):
    def __init__(self, emb_size, nhead, src_vocab_size, tgt_vocab_size):
        super().__init__()
        self.src_emb, self.tgt_emb = nn.Embedding(src_vocab_size, emb_size), nn.Embedding(tgt_vocab_size, emb_size)
        self.attend = nn.MultiheadAttention(emb_size, nhead, batch_first=True)
        self.generator = nn.Linear(emb_size, tgt_vocab_size)

    def forward(self, src, trg):
        memory = self.src_emb(src)
        return self.generator(self.attend(self.tgt_emb(trg), memory, memory)[0])


class NamedMethod(nn.Module):
    def __init__(self, method, hidden_size):
        super().__init__()
        if method not in ["dot", "general"]:
            raise ValueError(method, "is no method")
        self.method, self.attn = method, nn.Linear(hidden_size, hidden_size)

    def forward(self, x, context):
        keys = self.attn(context) if self.method == "general" else context
        return (x @ keys.mT).softmax(-1) @ context


class AddedMask(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.qkv = nn.Linear(dim, 3 * dim)

    def forward(self, x, attention_mask):
        q, k, v = self.qkv(x).chunk(3, -1)
        return (q @ k.mT + attention_mask).softmax(-1) @ v


class KeptMask(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.layer = AddedMask(dim)

    def forward(self, x, attention_mask):
        ext = (1.0 - attention_mask[:, None, :].float()) * -10000.0
        return self.layer(x, ext)


class SizesOneByOne(nn.Module):
    def __init__(self, n_head, d_model):
        super().__init__()
        self.n_head, self.d_head = n_head, d_model // n_head
        self.qkv = nn.Linear(d_model, 3 * d_model)

    def forward(self, w):
        qlen, bsz = w.size(0), w.size(1)
        q, k, v = (t.view(qlen, bsz, self.n_head, self.d_head) for t in self.qkv(w).chunk(3, -1))
        p = F.softmax(torch.einsum("ibnd,jbnd->ijbn", q, k), dim=1)
        return torch.einsum("ijbn,jbnd->ibnd", p, v).flatten(2)


class ReusedName(nn.Module):
    def __init__(self, n_embd, n_head):
        super().__init__()
        self.n_head, self.key = n_head, nn.Linear(n_embd, n_embd)

    def forward(self, x):
        B, T, C = x.size()
        k = self.key(x)
        k = k.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        scale = (C // self.n_head) ** -0.25
        return (k @ k.mT * scale).softmax(-1) @ k


class MediaLatents(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.q, self.kv = heads, nn.Linear(dim, dim), nn.Linear(dim, 2 * dim)

    def forward(self, x, latents):
        k, v = self.kv(torch.cat((x, latents), dim=-2)).chunk(2, -1)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).permute(0, 3, 1, 2, 4) for t in (self.q(latents), k, v))
        return ((q @ k.mT).softmax(-1) @ v).permute(0, 2, 3, 1, 4).flatten(3)


def with_slopes(q, k, v, slopes):
    n = k.shape[-2]
    bias = -(torch.arange(n)[:, None] - torch.arange(n)).abs() * slopes[:, None, None]
    return torch.bmm(torch.baddbmm(bias, q, k.mT).softmax(-1), v)


def seen_back(q, k, v, w=4):
    at = torch.arange(q.shape[2])
    s = q @ k.transpose(-1, -2)
    s.masked_fill_(at[None, :] < at[:, None] - w, -torch.inf)
    return s.softmax(-1) @ v


class NotCalled:
    def __init__(self, dim):
        self.dim = dim


n_embd, n_head = 48, 6


class LectureHead(nn.Module):
    def __init__(self, head_size):
        super().__init__()
        self.key = nn.Linear(n_embd, head_size, bias=False)

    def forward(self, x):
        k = self.key(x)
        return (k @ k.mT).softmax(-1) @ k


class LectureBlock(nn.Module):
    def __init__(self, n_embd, n_head):
        super().__init__()
        self.heads = nn.ModuleList([LectureHead(n_embd // n_head) for _ in range(n_head)])

    def forward(self, x):
        return x + torch.cat([head(x) for head in self.heads], dim=-1)


class Stacked(nn.Module):
    def __init__(self, vocab=19, pad=0, width=12, N=6):
        super().__init__()
        self.pad = pad
        self.embed = nn.Embedding(vocab, width)
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(N)])

    def forward(self, tokens):
        x = self.embed(tokens)
        s = (x @ x.mT).masked_fill((tokens == self.pad)[:, None], -1e9)
        for layer in self.layers:
            x = s.softmax(-1) @ layer(x)
        return x


class MustBeMasked(nn.Module):
    def __init__(self, dim, n_head, n_local_heads):
        super().__init__()
        self.n_head, self.n_local_heads, self.part = n_head, n_local_heads, dim // n_head
        self.q, self.kv = nn.Linear(dim, dim), nn.Linear(dim, 2 * n_local_heads * self.part)

    def forward(self, query, key, key_pad):
        b, n, _ = query.shape
        q = self.q(query).view(b, n, self.n_local_heads, -1, self.part)
        k, v = self.kv(key).view(b, -1, 2, self.n_local_heads, self.part).unbind(2)
        s = torch.einsum("bikgd,bjkd->bkgij", q, k) * self.part**-0.5
        s = s.masked_fill((key_pad == 1).view(b, 1, 1, 1, -1), -torch.inf)
        return torch.einsum("bkgij,bjkd->bikgd", s.softmax(-1), v).reshape(b, n, -1)


class ChannelsAndTokens(nn.Module):
    """A convolution over time, in groups of a norm."""

    def __init__(self, channels, heads):
        super().__init__()
        self.heads = heads
        self.norm, self.qkv = nn.GroupNorm(8, channels), nn.Conv1d(channels, 3 * channels, 1)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).unflatten(1, (3, self.heads, -1)).unbind(1)
        weights = (q.transpose(-2, -1) @ k).softmax(-1)
        return x + (v @ weights.transpose(-2, -1)).flatten(1, 2)


class HeadsByWidth(nn.Module):
    """A number of heads that is made of their width, in windows that divide the image."""

    def __init__(self, dim, dim_head, window_size):
        super().__init__()
        self.heads, self.window, self.qkv = dim // dim_head, window_size, nn.Linear(dim, 3 * dim)

    def forward(self, x):
        b, h, w, c = x.shape
        n = self.window
        x = x.view(b, h // n, n, w // n, n, c).transpose(2, 3).reshape(-1, n * n, c)
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return ((q @ k.transpose(-2, -1)).softmax(-1) @ v).transpose(1, 2).flatten(2)


class Items(nn.Module):
    """A table of what is called items, as many as there are and one for padding."""

    def __init__(self, n_items, d=64):
        super().__init__()
        self.table, self.qkv = nn.Embedding(n_items + 1, d, padding_idx=0), nn.Linear(d, 3 * d)

    def forward(self, seq):
        q, k, v = self.qkv(self.table(seq)).chunk(3, -1)
        return (q @ k.transpose(-2, -1)).softmax(-1) @ v


class LookAhead(nn.Module):
    """A switch that is called a mask, and a square as long as the input."""

    def __init__(self, dim, example_length):
        super().__init__()
        self.qkv = nn.Linear(dim, 3 * dim)
        self.register_buffer("future", torch.full((example_length, example_length), float("-inf")).triu(1))

    def forward(self, x, mask_future_steps: bool = True):
        q, k, v = self.qkv(x).chunk(3, -1)
        scores = q @ k.transpose(-2, -1)
        return (scores + self.future if mask_future_steps else scores).softmax(-1) @ v


class Edges(nn.Module):
    """Features of every pair, and a mask of pairs; heads in another language."""

    def __init__(self, dim_modelo, num_cabezas, edge_dim=4):
        super().__init__()
        self.heads = num_cabezas
        self.qkv, self.bias = nn.Linear(dim_modelo, 3 * dim_modelo), nn.Linear(edge_dim, num_cabezas)

    def forward(self, x, edge_features, mascara):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) + self.bias(edge_features).permute(0, 3, 1, 2)
        scores = scores.masked_fill(mascara.unsqueeze(1) == 0, -1e4)
        return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)


class PairOfTables(nn.Module):
    """Cosines and sines in one argument, a table for each."""

    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.qkv = heads, nn.Linear(dim, 3 * dim)

    def forward(self, x, freqs):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).unbind(2)
        cos, sin = freqs[0][:, : x.shape[1]], freqs[1][:, : x.shape[1]]
        q, k = (torch.stack([t[..., ::2] * cos - t[..., 1::2] * sin, t[..., ::2] * sin + t[..., 1::2] * cos], -1)
                .flatten(-2).transpose(1, 2) for t in (q, k))  # fmt: skip
        return ((q @ k.transpose(-2, -1)).softmax(-1) @ v.transpose(1, 2)).transpose(1, 2).flatten(2)


class Bought(nn.Module):
    """Items that were bought, those that will be and those that will not."""

    def __init__(self, item_num, width=16, heads=2):
        super().__init__()
        self.items = nn.Embedding(item_num, width)
        self.mix = nn.MultiheadAttention(width, heads)

    def forward(self, log_items, pos_items, neg_items):
        x = self.items(log_items).transpose(0, 1)
        seen = self.mix(x, x, x)[0].transpose(0, 1)
        return [(seen * self.items(each)).sum(-1) for each in (pos_items, neg_items)]


class Shifted(nn.Module):
    """Windows of an image that are shifted: (batch, height, width, channels)."""

    def __init__(self, dim, resolution=(8, 8), num_heads=2, window_size=4, shift_size=2):
        super().__init__()
        self.resolution, self.heads, self.size, self.shift = resolution, num_heads, window_size, shift_size
        self.packed = nn.Linear(dim, 3 * dim)
        rows, columns = resolution
        # as many windows as fit
        self.register_buffer("places", torch.zeros(rows // window_size * (columns // window_size), window_size**2))

    def forward(self, x):
        rows, columns = self.resolution
        b, _, _, c = x.shape
        x = x.roll((-self.shift, -self.shift), (1, 2)).view(b, rows // self.size, self.size, -1, self.size, c)
        x = x.transpose(2, 3).reshape(b, -1, self.size**2, c) + self.places[..., None]
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(-2, -3) for t in self.packed(x).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v).transpose(-2, -3).flatten(-2)
        y = y.reshape(b, rows // self.size, columns // self.size, self.size, self.size, c).transpose(2, 3)
        return y.reshape(b, rows, columns, c).roll((self.shift, self.shift), (1, 2))
