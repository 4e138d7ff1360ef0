"""ALiBi: a bias that falls with the distance between query and key, at a slope of each head's own."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from headwise.errors import ArgumentError
from headwise.positions.constants import FixedNumbers
from headwise.positions.distances import distances


def alibi_slopes(num_heads: int) -> tuple[float, ...]:
    """The slope of each head: 2^(-8h / H) for h = 1..H.

    Where H is no power of two: those of the power of two below, then every other one of those of the power above.
    Press et al. 2021, arXiv:2108.12409, section 3, and the authors' `get_slopes`.

    >>> alibi_slopes(2), alibi_slopes(3)
    ((0.0625, 0.00390625), (0.0625, 0.00390625, 0.25))
    """
    if num_heads < 1:
        raise ArgumentError(f"ALiBi needs num_heads >= 1, got num_heads={num_heads}: give the number of query heads")
    below = 1 << (num_heads.bit_length() - 1)
    between = [2.0 ** (-4 * h / below) for h in range(1, 2 * below, 2)]
    return (*(2.0 ** (-8 * h / below) for h in range(1, below + 1)), *between[: num_heads - below])


@dataclass(frozen=True)
class Alibi:
    """A bias of -slope · |i - j| on each score, which needs no training and reaches past the trained length.

    Press et al. 2021, arXiv:2108.12409, section 3, for keys before the query; |i - j| serves both sides.

    >>> Alibi().build(2)(torch.tensor([2]), torch.arange(4))
    tensor([[[[-0.1250, -0.0625,  0.0000, -0.0625]],
    <BLANKLINE>
             [[-0.0078, -0.0039,  0.0000, -0.0039]]]])
    """

    def build(self, num_heads: int, device: torch.device | str | None = None) -> AlibiBias:
        """The module that gives the bias of num_heads heads. device: None: torch's default.

        >>> Alibi().build(8)
        AlibiBias(num_heads=8)
        """
        return AlibiBias(num_heads, device=device)


class AlibiBias(FixedNumbers):
    """Gives the bias of each head, float32 whatever the module's dtype; it has nothing in its state_dict.

    >>> AlibiBias(4)(torch.arange(5), torch.arange(7)).shape
    torch.Size([1, 4, 5, 7])
    """

    def __init__(self, num_heads: int, *, device: torch.device | str | None = None) -> None:
        slopes = torch.tensor(alibi_slopes(num_heads), dtype=torch.float32, device="cpu")
        super().__init__(slopes[:, None, None], device)
        self.num_heads = num_heads

    def forward(self, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        """(Lq,) or (B, Lq), and (Lk,) or (B, Lk), whole numbers -> (B|1, H, Lq, Lk)."""
        steps = distances(query_positions, key_positions).abs().neg()
        return steps * self.numbers(steps.device)

    def extra_repr(self) -> str:
        return f"num_heads={self.num_heads}"
