"""An encoder and a decoder whose attentions, to themselves and across, are of one class."""

import math

import torch
from torch import nn


class MHA(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.d_k = d_model // num_heads
        self.wq = nn.Linear(d_model, d_model)
        self.wk = nn.Linear(d_model, d_model)
        self.wv = nn.Linear(d_model, d_model)
        self.wo = nn.Linear(d_model, d_model)

    def forward(self, query, key, value, mask=None):
        B = query.size(0)
        q = self.wq(query).view(B, -1, self.num_heads, self.d_k).transpose(1, 2)
        k = self.wk(key).view(B, -1, self.num_heads, self.d_k).transpose(1, 2)
        v = self.wv(value).view(B, -1, self.num_heads, self.d_k).transpose(1, 2)
        s = q @ k.transpose(-2, -1) / math.sqrt(self.d_k)
        if mask is not None:
            s = s.masked_fill(mask == 0, -1e9)
        y = s.softmax(-1) @ v
        return self.wo(y.transpose(1, 2).contiguous().view(B, -1, self.num_heads * self.d_k))


class Feed(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.a = nn.Linear(d_model, d_ff)
        self.b = nn.Linear(d_ff, d_model)

    def forward(self, x):
        return self.b(torch.relu(self.a(x)))


class EncoderLayer(nn.Module):
    def __init__(self, d_model, num_heads, d_ff):
        super().__init__()
        self.att = MHA(d_model, num_heads)
        self.ff = Feed(d_model, d_ff)
        self.n1, self.n2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)

    def forward(self, x, mask):
        x = self.n1(x + self.att(x, x, x, mask))
        return self.n2(x + self.ff(x))


class DecoderLayer(nn.Module):
    def __init__(self, d_model, num_heads, d_ff):
        super().__init__()
        self.self_att = MHA(d_model, num_heads)
        self.cross_att = MHA(d_model, num_heads)
        self.ff = Feed(d_model, d_ff)
        self.n1, self.n2, self.n3 = nn.LayerNorm(d_model), nn.LayerNorm(d_model), nn.LayerNorm(d_model)

    def forward(self, x, memory, src_mask, tgt_mask):
        x = self.n1(x + self.self_att(x, x, x, tgt_mask))
        x = self.n2(x + self.cross_att(x, memory, memory, src_mask))
        return self.n3(x + self.ff(x))


class Transformer(nn.Module):
    def __init__(self, src_vocab_size, tgt_vocab_size, d_model=24, num_heads=4, num_layers=2, d_ff=48, max_len=100):
        super().__init__()
        self.src = nn.Embedding(src_vocab_size, d_model)
        self.tgt = nn.Embedding(tgt_vocab_size, d_model)
        self.enc = nn.ModuleList([EncoderLayer(d_model, num_heads, d_ff) for _ in range(num_layers)])
        self.dec = nn.ModuleList([DecoderLayer(d_model, num_heads, d_ff) for _ in range(num_layers)])
        self.out = nn.Linear(d_model, tgt_vocab_size)

    def masks(self, src, tgt):
        src_mask = (src != 0)[:, None, None]
        L = tgt.size(1)
        tgt_mask = (tgt != 0)[:, None, :, None] & torch.ones(L, L, dtype=torch.bool).tril()
        return src_mask, tgt_mask

    def forward(self, src, tgt):
        src_mask, tgt_mask = self.masks(src, tgt)
        x = self.src(src)
        for each in self.enc:
            x = each(x, src_mask)
        y = self.tgt(tgt)
        for each in self.dec:
            y = each(y, x, src_mask, tgt_mask)
        return self.out(y)
