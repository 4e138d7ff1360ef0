"""Dropout: which weights are zeroed, strip by strip, from a seed, so that a backward pass sees the same."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from headwise.ops.strips import Strip
from headwise.ops.workspace import Workspace


@dataclass(frozen=True)
class Drops:
    """Dropout of a call: its chance, and the seed of every strip's random bits.

    A weight is dropped where an integer of random bits lies below a threshold: with 16 bits the chance is met to
    2^-17, with 32, which serve chances near 0 or 1, to 2^-33; what is kept is raised by the chance as it is met.
    """

    chance: float
    seed: int

    @property
    def bits(self) -> int:
        """How many random bits decide over a weight."""
        return 16 if min(self.chance, 1.0 - self.chance) >= 2.0**-8 else 32

    @property
    def dropped(self) -> int:
        """How many of the 2^bits integers drop a weight."""
        return round(math.ldexp(self.chance, self.bits))

    @property
    def raised(self) -> float:
        """What a kept weight is multiplied by."""
        left = 2**self.bits - self.dropped
        return 2**self.bits / left if left else 0.0

    def kept(self, number: int, at: Strip, room: Workspace, dtype: torch.dtype) -> Tensor:
        """1 where a weight is kept and 0 where it is dropped, for the strip of this number."""
        kept = room.buffer("kept", at.shape, dtype)
        if self.dropped == 2**self.bits:
            return kept.zero_()
        words = -(-kept.numel() * self.bits // 64)
        bits = room.buffer("bits", (words * 64 // self.bits,), torch.int16 if self.bits == 16 else torch.int32)
        # random_ draws 64 bits in the time of one number: measured, 0.65 ns a weight, where bernoulli_ takes 4.5
        bits.view(torch.int64).random_(-(2**63), None, generator=torch.Generator().manual_seed(self.seed + number))
        draws = bits[: kept.numel()].view(at.shape)
        # a comparison that writes numbers, and a product, cost an eighth of masked_fill_
        return torch.ge(draws, self.dropped - 2 ** (self.bits - 1), out=kept)


@dataclass(frozen=True, eq=False)
class SavedDrops(Drops):
    """The drops of a call whose backward pass reads what the forward pass drew, a byte a weight.

    drops: what is drawn. saved: what each strip keeps, bool (samples and heads, rows, columns), by the strip's number;
    a strip whose number it does not hold yet is drawn and added. Reading takes a quarter of the time of drawing.
    """

    drops: Drops
    saved: dict[int, Tensor]

    @staticmethod
    def of(drops: Drops, saved: dict[int, Tensor]) -> SavedDrops:
        """These drops, beside what was saved of them, by the numbers of strips."""
        return SavedDrops(drops.chance, drops.seed, drops, saved)

    def kept(self, number: int, at: Strip, room: Workspace, dtype: torch.dtype) -> Tensor:
        """1 where a weight is kept and 0 where it is dropped, for the strip of this number."""
        if number in self.saved:
            return room.buffer("kept", at.shape, dtype).copy_(self.saved[number])
        kept = self.drops.kept(number, at, room, dtype)
        self.saved[number] = kept.bool()
        return kept


def drawn_seed(generator: torch.Generator | None, device: torch.device) -> Tensor:
    """A seed for the drops of one call, from the generator, or torch's global one."""
    return torch.randint(0, 2**31, (), generator=generator, device=device)
