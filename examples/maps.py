"""The weights of a model that runs unchanged, of a call too long to hold them, and a loss on them."""

import torch
from torch import nn

import headwise as hw
from headwise.errors import ArgumentError

torch.manual_seed(0)
model = nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, batch_first=True), 2).eval()
x = torch.randn(2, 10, 64)  # (B, L, E)
with torch.no_grad():
    alone = model(x)
    with hw.watch(model) as seen:
        watched = model(x)
print(f"watched: the output differs by {(watched - alone).abs().max():.0f}; {len(seen)} maps: {', '.join(seen)}")

m = seen.find("layers.1")
weights, keys = m.topk(2)
print(f"{m}: query 3 of head 0 looks most at keys {keys[0, 0, 3].tolist()}")
print(f"token 3 of the last layer comes from token {hw.rollout(seen, token=3)[0].argmax()} most of all")

# 8192 tokens: the dense map would take 2 GiB, what is read of it a few megabytes
q, k = torch.randn(1, 8, 8192, 64), torch.randn(1, 8, 8192, 64)
m = hw.attention_map(q, k, mask=hw.window(keys=512))
picture = m.pooled(64, 64)
print(f"entropy {m.entropy().mean():.2f} of at most {torch.tensor(512.0).log():.2f}, a picture {tuple(picture.shape)}")
try:
    m.dense()
except ArgumentError as refusal:
    print(f"refused: {refusal}")

# heads that are asked to look at one token more sharply: a loss on the weights, trained through q and k
attn = hw.MultiHeadAttention(64, 4)
steps = torch.optim.Adam(attn.parameters(), lr=3e-3)
entropies = []
for _ in range(20):
    with hw.watch(attn, grad=True) as seen:
        attn(x)
    entropies.append(seen[""].entropy().mean())
    steps.zero_grad()
    entropies[-1].backward()
    steps.step()
print(f"entropy of the heads, trained down: {entropies[0]:.2f} -> {entropies[-1]:.2f}")
