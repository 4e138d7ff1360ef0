"""Induction heads: a model of two layers of attention learns them, their scores find them, and ablation proves them."""

import time

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import headwise as hw

WORDS, LENGTH, WIDTH, HEADS, STEPS = 40, 48, 64, 4, 400


class TwoLayers(nn.Module):
    """Attention and nothing else: (B, L) token ids -> (B, L, words) scores of the next token."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(hw.MultiHeadAttention(WIDTH, HEADS, position=hw.Rotary()) for _ in range(2))
        self.out = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        for attn in self.layers:
            x = x + attn(F.rms_norm(x, (WIDTH,)), mask=hw.causal())
        return self.out(F.rms_norm(x, (WIDTH,)))


def repeated(samples: int) -> tuple[Tensor, Tensor]:
    """Random tokens that repeat, after 8 to 24 of them: ids (B, L), and which of ids[:, 1:] can be known (B, L-1)."""
    period = torch.randint(8, 25, (samples, 1))
    place = torch.arange(LENGTH)
    ids = torch.randint(1, WORDS, (samples, LENGTH)).gather(1, torch.where(place < period, place, place % period))
    return ids, place[1:] > period


def loss_of(logits: Tensor, ids: Tensor, is_known: Tensor) -> Tensor:
    """The mean loss of the tokens that have come before."""
    return F.cross_entropy(logits[:, :-1].transpose(1, 2), ids[:, 1:], reduction="none")[is_known].mean()


torch.manual_seed(0)
model = TwoLayers()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.98))
began = time.perf_counter()
for _ in range(STEPS):
    ids, is_known = repeated(32)
    loss = loss_of(model(ids), ids, is_known)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"{STEPS} steps, {time.perf_counter() - began:.0f} s; tokens that repeat: loss {loss:.2f}, by chance", end=" ")
print(f"{torch.tensor(WORDS - 1.0).log():.2f}")

ids, is_known = repeated(32)
with torch.no_grad(), hw.watch(model) as seen:
    base = loss_of(model(ids), ids, is_known)
heads = hw.name_heads(seen, ids)
print(heads)

# what a head looks at is no proof of what it does: take the heads away, and see the loss
induction = [(name, head) for name, head, score in heads.top("induction", 2 * HEADS) if score >= 0.5]
previous = [(name, head) for name, head, score in heads.top("previous", 2 * HEADS) if score >= 0.5]
others = [place for place in heads.places() if place not in induction + previous]
for what, places in (("induction", induction), ("previous-token", previous), ("other", others)):
    with torch.no_grad(), hw.intervene(model) as edits:
        for name, head in places:
            edits[name].zero(heads=head)
        without = loss_of(model(ids), ids, is_known)
    print(f"without the {len(places)} {what} heads: loss {base:.2f} -> {without:.2f}")
