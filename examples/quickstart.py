"""The first lines with headwise: a layer, a mask, a cache, a memory, and which backend computes them."""

import torch

import headwise as hw

torch.manual_seed(0)
attn = hw.MultiHeadAttention(512, 8, position=hw.Rotary())
x = torch.randn(2, 7, 512)  # (B, L, E)

y = attn(x, mask=hw.causal())
print(f"self-attention: {tuple(x.shape)} -> {tuple(y.shape)}")

# the same numbers, one token at a time
cache = attn.cache()
with torch.no_grad():
    steps = [attn(token, mask=hw.causal(), cache=cache) for token in x.split(1, dim=1)]
print(f"{cache}: largest difference {(torch.cat(steps, dim=1) - y).abs().max():.0e}")

# cross-attention to two texts of 9 and 4 tokens with features of another width, projected once and looked at twice
cross = hw.MultiHeadAttention(512, 8, kdim=300)
memory = cross.memory(torch.randn(2, 9, 300), mask=hw.lengths([9, 4]))
print(f"cross-attention: {tuple(x.shape)} -> {tuple(cross(x, memory).shape)}, then {tuple(cross(y, memory).shape)}")

q, k, v = torch.randn(2, 8, 7, 64), torch.randn(2, 2, 7, 64), torch.randn(2, 2, 7, 64)  # (B, H, L, D), 2 heads for 8
print(f"function: {tuple(hw.attention(q, k, v, mask=hw.causal()).shape)}, computed by:")
print(hw.backends(q, k, v, mask=hw.causal()))
