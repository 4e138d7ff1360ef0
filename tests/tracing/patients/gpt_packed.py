import math
from dataclasses import dataclass
import torch
import torch.nn as nn
from torch.nn import functional as F

@dataclass
class Config:
    block_size: int = 256
    n_head: int = 6
    n_embd: int = 384
    attn_pdrop: float = 0.0
    resid_pdrop: float = 0.0

class CausalSelfAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        assert config.n_embd % config.n_head == 0
        self.n_head = config.n_head
        self.qkv = nn.Linear(config.n_embd, 3 * config.n_embd)
        self.proj = nn.Linear(config.n_embd, config.n_embd)
        self.attn_drop, self.resid_drop = nn.Dropout(config.attn_pdrop), nn.Dropout(config.resid_pdrop)
        causal = torch.ones(config.block_size, config.block_size).tril()
        self.register_buffer("causal", causal[None, None])

    def forward(self, x):
        B, T, C = x.size()
        nh = self.n_head
        q, k, v = self.qkv(x).split(C, dim=2)
        q = q.view(B, T, nh, C // nh).transpose(1, 2)  # (B, nh, T, hs)
        k = k.view(B, T, nh, C // nh).transpose(1, 2)
        v = v.view(B, T, nh, C // nh).transpose(1, 2)
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(C // nh))
        att = att.masked_fill(self.causal[:,:,:T,:T] == 0, float("-inf"))
        att = self.attn_drop(F.softmax(att, dim=-1))
        y = (att @ v).transpose(1, 2).contiguous().view(B, T, C)
        return self.resid_drop(self.proj(y))
