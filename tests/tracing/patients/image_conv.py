import torch
from torch import nn


class ConvAttention(nn.Module):
    def __init__(self, channels, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.norm = nn.GroupNorm(1, channels)
        self.qkv = nn.Conv2d(channels, channels * 3, 1)
        self.proj = nn.Conv2d(channels, channels, 1)
        self.gamma = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        b, c, h, w = x.shape
        qkv = self.qkv(self.norm(x))
        q, k, v = qkv.reshape(b * self.num_heads, -1, h * w).chunk(3, dim=1)
        attn = torch.einsum("bct,bcs->bts", q, k) * (c // self.num_heads) ** -0.5
        attn = attn.softmax(-1)
        out = torch.einsum("bts,bcs->bct", attn, v).reshape(b, c, h, w)
        return x + self.gamma * self.proj(out)
