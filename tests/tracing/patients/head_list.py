import torch
import torch.nn as nn
from torch.nn import functional as F


class Head(nn.Module):
    """ a single causal head """

    def __init__(self, n_embd, head_size, block_size, dropout):
        super().__init__()
        self.key   = nn.Linear(n_embd, head_size, bias=False)
        self.query = nn.Linear(n_embd, head_size, bias=False)
        self.value = nn.Linear(n_embd, head_size, bias=False)
        self.register_buffer('tril', torch.tril(torch.ones(block_size, block_size)))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        B,T,C = x.shape
        k,q,v = self.key(x), self.query(x), self.value(x)
        w = q @ k.transpose(-2,-1) / C**0.5
        w = w.masked_fill(self.tril[:T,:T] == 0, float('-inf'))
        w = self.dropout(F.softmax(w, dim=-1))
        return w @ v


class ManyHeads(nn.Module):
    """ heads side by side, then mixed """

    def __init__(self, n_embd, num_heads, block_size, dropout=0.2):
        super().__init__()
        head_size = n_embd // num_heads
        self.heads = nn.ModuleList(Head(n_embd, head_size, block_size, dropout) for _ in range(num_heads))
        self.proj = nn.Linear(num_heads * head_size, n_embd)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        out = torch.cat([h(x) for h in self.heads], dim=-1)
        return self.dropout(self.proj(out))
