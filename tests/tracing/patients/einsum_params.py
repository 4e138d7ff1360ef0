import torch
import torch.nn as nn


class EinsumSelfAttention(nn.Module):
    """All projections as one tensor per role, TensorFlow/T2T habits die hard."""

    def __init__(self, features: int, num_heads: int, head_dim: int, causal: bool = True):
        super().__init__()
        self.causal = causal
        self.wq = nn.Parameter(torch.randn(features, num_heads, head_dim) * features**-0.5)
        self.wk = nn.Parameter(torch.randn(features, num_heads, head_dim) * features**-0.5)
        self.wv = nn.Parameter(torch.randn(features, num_heads, head_dim) * features**-0.5)
        self.wo = nn.Parameter(torch.randn(num_heads, head_dim, features) * (num_heads * head_dim) ** -0.5)
        self.bq = nn.Parameter(torch.zeros(num_heads, 1, head_dim))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        query = torch.einsum("btf,fhd->bhtd", inputs, self.wq) + self.bq
        key = torch.einsum("btf,fhd->bhtd", inputs, self.wk)
        value = torch.einsum("btf,fhd->bhtd", inputs, self.wv)
        logits = torch.einsum("bhqd,bhkd->bhqk", query, key).div(query.shape[-1] ** 0.5)
        if self.causal:
            t = inputs.shape[1]
            future = torch.triu(torch.ones(t, t, dtype=torch.bool), diagonal=1)
            logits = torch.where(future, torch.finfo(logits.dtype).min, logits)
        weights = torch.softmax(logits, -1)
        context = torch.einsum("bhqk,bhkd->bqhd", weights, value)
        return torch.einsum("bqhd,hdf->bqf", context, self.wo)
