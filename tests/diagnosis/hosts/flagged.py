"""Attention of a language model's layer, in the manner of a large library."""
import torch
from torch import nn


class FlaggedAttention(nn.Module):
    def __init__(self, hidden_size, num_attention_heads, max_positions=128):
        super().__init__()
        self.num_heads = num_attention_heads
        self.head_dim = hidden_size // num_attention_heads
        self.c_attn = nn.Linear(hidden_size, 3 * hidden_size)
        self.c_proj = nn.Linear(hidden_size, hidden_size)
        lower = torch.tril(torch.ones(max_positions, max_positions, dtype=torch.bool))
        self.register_buffer("bias", lower.view(1, 1, max_positions, max_positions), persistent=False)

    def forward(self, hidden_states, layer_past=None, use_cache=False, output_attentions=False):
        query, key, value = self.c_attn(hidden_states).chunk(3, dim=2)
        shape = (*hidden_states.shape[:2], self.num_heads, self.head_dim)
        query = query.view(shape).permute(0, 2, 1, 3)
        key = key.view(shape).permute(0, 2, 1, 3)
        value = value.view(shape).permute(0, 2, 1, 3)
        if layer_past is not None:
            key = torch.cat((layer_past[0], key), dim=-2)
            value = torch.cat((layer_past[1], value), dim=-2)
        present = (key, value) if use_cache else None
        n_query, n_key = query.size(-2), key.size(-2)
        weights = torch.matmul(query, key.transpose(-1, -2)) / self.head_dim**0.5
        causal = self.bias[:, :, n_key - n_query : n_key, :n_key]
        weights = torch.where(causal, weights, torch.full([], float("-inf"), dtype=weights.dtype))
        weights = torch.softmax(weights, dim=-1)
        merged = torch.matmul(weights, value).permute(0, 2, 1, 3).contiguous().view(hidden_states.shape)
        outputs = (self.c_proj(merged), present)
        if output_attentions:
            outputs += (weights,)
        return outputs
