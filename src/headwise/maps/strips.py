"""Strips: a map in blocks of whole rows, few enough at a time to fit in little memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from headwise.maps.tiling import pieces
from headwise.ops.call import Call

# entries of the map in one strip; computing a strip's gradient takes about ten times their memory
ENTRIES = 1 << 20


@dataclass(frozen=True)
class Strip:
    """Some samples, query heads and rows of a map, with all of its columns."""

    samples: slice
    heads: slice
    rows: slice

    def part(self, call: Call) -> Call:
        """The call of this strip."""
        return call.part(self.rows, samples=self.samples, heads=self.heads)

    def of_rows(self, values: Tensor) -> Tensor:
        """The part of values (B, Hq, Lq, ...) that belongs to this strip."""
        return values[self.samples, self.heads, self.rows]

    def of_heads(self, values: Tensor) -> Tensor:
        """The part of values (B, Hq, ...) that belongs to all rows of this strip's samples and heads."""
        return values[self.samples, self.heads]


def strips(call: Call, *, whole_heads: bool = False, rows: list[slice] | None = None) -> list[Strip]:
    """Strips that cover a map; whole_heads: each holds all heads. rows: where to cut, None: where memory says."""
    B, Hq, Lq, _ = call.sizes
    most = longest_run(call, whole_heads=whole_heads)
    cuts = list(pieces(Lq, most)) if rows is None else rows
    longest = max((cut.stop - cut.start for cut in cuts), default=1)
    # how many groups of heads, and then how many samples, fit beside each other
    groups = max(1, Hq // call.groups) if whole_heads else max(1, most // longest)
    heads = min(groups * call.groups, max(1, Hq))
    samples = max(1, longest_run(call, whole_heads=True) // longest) if heads >= Hq else 1
    return [Strip(b, h, cut) for b in pieces(B, samples) for h in pieces(Hq, heads) for cut in cuts]


def longest_run(call: Call, *, whole_heads: bool = False) -> int:
    """How many rows of the heads that share a key head, or of all heads, one strip may hold."""
    heads = max(1, call.sizes.H) if whole_heads else call.groups
    # additive scoring holds a vector of features for each pair
    width = 1 if call.weight is None else call.q.shape[-1]
    return max(1, ENTRIES // (heads * max(1, call.sizes.Lk) * width))


@contextmanager
def exact(call: Call) -> Iterator[None]:
    """A block that computes in full precision, without gradients, what may be kept and used with them later."""
    with torch.inference_mode(False), torch.no_grad(), torch.autocast(call.q.device.type, enabled=False):
        yield
