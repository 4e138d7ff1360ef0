"""Masks that are drawn before they are trusted: patterns, their algebra, and padding."""

import torch

import headwise as hw

ids = torch.tensor([0, 0, 0, 1, 1, 2])

for mask in (
    hw.causal(),
    hw.window(keys=3),
    hw.window(before=1, after=1),
    hw.causal() | hw.prefix(3),
    hw.causal() & hw.documents(ids),
    hw.causal() & ~hw.window(keys=2),
    hw.rule(lambda b, h, i, j: (i - j) % 2 == 0),
):
    print(f"{mask}\n{mask.draw(6, 6)}\n")

print("2 new queries that look back on 6 keys, the last of them their own")
print(f"{hw.causal().draw(2, 6)}\n")

# two samples of 4 and 2 tokens, padded on the right to 4, and on the left
print(f"{hw.lengths([4, 2])}\n{hw.lengths([4, 2]).draw(1, 4)}\n")
keep = torch.tensor([[True, True, True, True], [False, False, True, True]])
print(f"keys(keep) & causal()\n{(hw.keys(keep) & hw.causal()).draw(4, 4)}\n")

# what is padded gets the same numbers as what is alone
torch.manual_seed(0)
attn, x = hw.MultiHeadAttention(64, 4), torch.randn(2, 4, 64)
padded, alone = attn(x, mask=hw.lengths([4, 2]))[1, :2], attn(x[1, :2])
print(f"padded and alone: largest difference {(padded - alone).abs().max():.0e}")
