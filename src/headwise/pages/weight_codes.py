"""Weight codes: a weight as one byte on a logarithmic scale, at most 4 % off, and codes for what is no weight."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = [
    "EMPTY",
    "FIRST",
    "LAST",
    "MASKED",
    "NAN",
    "OCTAVES",
    "ZERO",
    "coded",
    "decoded",
    "encoded",
    "largest_of_blocks",
    "sides",
]

# in this order the largest code of a block is what the block is to show: NaN, the largest weight, or why there is none
EMPTY, MASKED, ZERO, FIRST, LAST, NAN = 0, 1, 2, 3, 253, 255
# the levels run from 2**-OCTAVES to 1, neighbours 8.1 % apart, so that the nearest is never more than 4 % off
OCTAVES = 28
STEPS = (LAST - FIRST) / OCTAVES


def encoded(weights: Tensor, hidden: Tensor | None, block: int = 1) -> Tensor:
    """Weights (H, rows, Lk) as codes, uint8, of the largest of each block × block square; the last may be smaller.

    hidden: True where a pair may not attend; None: nowhere. A row that may attend to nothing is EMPTY, a pair that may
    not MASKED, a weight below 2**-28 ZERO. A square is the first of these only if all of it is.

    >>> weights = torch.tensor([[[0.75, 0.25, 0.0], [0.0, 0.0, 0.0]]])
    >>> encoded(weights, torch.tensor([[[False, False, True], [True, True, True]]])).tolist()
    [[[249, 235, 1], [0, 0, 0]]]
    """
    size = sides(weights, block)
    # a largest weight of NaN is NaN
    largest = _largest(weights, size)
    if hidden is None:
        return coded(largest, None, None)
    has_row = _largest((~hidden.all(-1, keepdim=True)).float(), (size[0], 1))[..., 0] > 0
    return coded(largest, _largest((~hidden).float(), size) > 0, has_row)


def coded(weights: Tensor, is_open: Tensor | None, has_row: Tensor | None) -> Tensor:
    """Largest weights of squares (..., rows, columns) as codes, uint8.

    is_open: False where no pair of the square may attend. has_row (..., rows): False where none of its rows may attend
    to anything. None: nowhere.
    """
    codes = FIRST + ((weights.clamp(min=2.0**-OCTAVES).log2() + OCTAVES) * STEPS).round_().clamp_(max=LAST - FIRST)
    codes = codes.masked_fill_(weights < 2.0**-OCTAVES, ZERO).masked_fill_(weights.isnan(), NAN)
    if is_open is not None:
        codes = codes.masked_fill_(~is_open, MASKED)
    if has_row is not None:
        codes = codes.masked_fill_(~has_row[..., None], EMPTY)
    return codes.to(torch.uint8)


def decoded(codes: Tensor) -> Tensor:
    """The weights that codes stand for: 0 where there is none, NaN for NAN.

    >>> decoded(torch.tensor([1, 253, 235], dtype=torch.uint8))
    tensor([0.0000, 1.0000, 0.2472])
    """
    exact = ((codes.float() - FIRST) / STEPS - OCTAVES).exp2()
    return exact.masked_fill(codes < FIRST, 0.0).masked_fill(codes == NAN, float("nan"))


def largest_of_blocks(codes: Tensor, block: int) -> Tensor:
    """Codes (H, rows, columns) with each block × block square as its largest; the last squares may be smaller."""
    return codes if block == 1 else _largest(codes.float(), sides(codes, block)).to(torch.uint8)


def sides(codes: Tensor, block: int) -> tuple[int, int]:
    """The rows and columns of a block, no more than the codes have."""
    return min(block, codes.shape[-2]), min(block, codes.shape[-1])


def _largest(values: Tensor, size: tuple[int, int]) -> Tensor:
    return values if size == (1, 1) else F.max_pool2d(values, size, ceil_mode=True)
