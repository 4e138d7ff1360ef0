import torch
import torch.nn as nn


class WindowAttention(nn.Module):
    def __init__(self, dim, window_size, num_heads, shift=0):
        super().__init__()
        self.ws, self.nh, self.shift = window_size, num_heads, shift
        self.scale = (dim // num_heads) ** -0.5
        self.bias_table = nn.Parameter(torch.randn(2 * window_size - 1, num_heads))
        pos = torch.arange(window_size)
        self.register_buffer("rel_index", pos[:, None] - pos[None, :] + window_size - 1)
        self.qkv = nn.Linear(dim, dim * 3)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        B, N, C = x.shape
        assert N % self.ws == 0, "sequence must be a whole number of windows"
        if self.shift > 0:
            x = torch.roll(x, shifts=-self.shift, dims=1)
        win = x.view(B, N // self.ws, self.ws, C).reshape(-1, self.ws, C)
        qkv = self.qkv(win).reshape(-1, self.ws, 3, self.nh, C // self.nh).permute(2, 0, 3, 1, 4)
        q, k, v = qkv[0], qkv[1], qkv[2]
        attn = (q * self.scale) @ k.transpose(-2, -1)
        bias = self.bias_table[self.rel_index.view(-1)].view(self.ws, self.ws, -1)
        attn = attn + bias.permute(2, 0, 1).contiguous().unsqueeze(0)
        win = (attn.softmax(-1) @ v).transpose(1, 2).reshape(-1, self.ws, C)
        x = self.proj(win).view(B, N, C)
        if self.shift > 0:
            x = torch.roll(x, shifts=self.shift, dims=1)
        return x
