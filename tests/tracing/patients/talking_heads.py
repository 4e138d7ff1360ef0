import torch
from torch import nn


class TalkingHeadsAttention(nn.Module):
    def __init__(self, d_model: int, heads: int, d_k: int, d_v: int):
        super().__init__()
        self.heads, self.d_k, self.d_v = heads, d_k, d_v
        self.query = nn.Linear(d_model, heads * d_k)
        self.key = nn.Linear(d_model, heads * d_k)
        self.value = nn.Linear(d_model, heads * d_v)
        self.before = nn.Linear(heads, heads, bias=False)
        self.after = nn.Parameter(torch.eye(heads))
        self.merge = nn.Linear(heads * d_v, d_model)

    def forward(self, x: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
        q = self.query(x).reshape(*x.shape[:2], self.heads, self.d_k)
        k = self.key(memory).reshape(*memory.shape[:2], self.heads, self.d_k)
        v = self.value(memory).reshape(*memory.shape[:2], self.heads, self.d_v)
        scores = torch.einsum("blhd,bshd->blsh", q, k) / self.d_k**0.5
        scores = self.before(scores)
        weights = scores.softmax(dim=2)
        weights = torch.tensordot(weights, self.after, dims=1)
        heads = torch.einsum("blsh,bshv->blhv", weights, v)
        return self.merge(heads.flatten(start_dim=-2))
