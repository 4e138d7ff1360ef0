"""A first multi-head attention, written from memory: `headwise trace` and `headwise doctor` find what is wrong."""

import torch
from torch import nn


class FirstAttention(nn.Module):
    """It runs, its output has the right shape, and yet it is wrong."""

    def __init__(self, d_model: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q_proj, self.k_proj = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)
        self.v_proj, self.o_proj = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)

    def split(self, x: torch.Tensor) -> torch.Tensor:
        """Each head gets its share of the width."""
        B, L, D = x.shape
        return x.view(B, L, self.heads, D // self.heads).transpose(1, 2)

    def forward(self, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        """Attention of L queries to S keys."""
        q = self.split(self.q_proj(query))  # [B, L, D] -> [B, H, L, d]
        k = self.split(self.k_proj(key))  # [B, S, D] -> [B, H, L, d]
        v = self.split(self.v_proj(key))
        weights = torch.softmax(q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5, dim=-1)
        context = (weights @ v).reshape(query.shape)
        return self.o_proj(context)


if __name__ == "__main__":
    import headwise as hw

    out = FirstAttention(d_model=12, heads=3)(torch.randn(2, 5, 12), torch.randn(2, 7, 12))
    print(f"the shape is right: {tuple(out.shape)}")
    for finding in hw.doctor(FirstAttention).faults:
        print(f"line {finding.line}: {finding.kind}: {finding.source.strip()}")
