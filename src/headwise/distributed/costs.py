"""Costs: what a layout makes a step of training cost, by the work of its slowest rank and what that rank receives."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from headwise.distributed.layouts import Layout, balanced, contiguous, zigzag
from headwise.distributed.needed_keys import BLOCK, block_of, on_host, open_tiles
from headwise.masks import Mask
from headwise.masks.derived_tensors import derived, has_function
from headwise.masks.selection import Picked
from headwise.masks.tiles import EMPTY

# of the two products of a score, forward, and the five of backward
FORWARD, BACKWARD = 2, 5
# the runs of a rank among which a balanced layout is sought, and the fewest tokens of a run
PIECES, FEWEST = (2, 4, 8, 16), 16
# estimates are no closer than that: of layouts that differ by less, the one that receives least is taken
NEARLY = 1.04


class Machine(NamedTuple):
    """What a rank can do: flops of attention a second, bytes received a second, seconds that an exchange takes."""

    flops: float
    bandwidth: float
    latency: float


# orders of magnitude, of one rank; give your own to `spread` where they are known
MACHINES: dict[str, Machine] = {
    "cpu": Machine(5e10, 2e9, 2e-4),
    "nvlink": Machine(4e14, 4e11, 1e-5),
    "infiniband": Machine(4e14, 5e10, 3e-5),
    "ethernet": Machine(4e14, 1.2e10, 5e-5),
}


class LayerSize(NamedTuple):
    """The size of one layer's attention: query heads, key/value heads, width of a head, bytes of a number."""

    query: int = 32
    key: int = 8
    width: int = 128
    itemsize: int = 2

    @property
    def token_bytes(self) -> int:
        """Bytes of the key and the value of one token."""
        return 2 * self.key * self.width * self.itemsize

    @property
    def gradient_bytes(self) -> int:
        """Bytes of their gradients, which travel in float32 at least."""
        return 2 * self.key * self.width * max(4, self.itemsize)

    def flops(self, pairs: float, products: int) -> float:
        """Multiplications and additions of so many products over the pairs of all query heads."""
        return 2.0 * products * pairs * self.query * self.width


@dataclass(frozen=True, eq=False)
class Estimate:
    """What a layout costs: of each rank the pairs it computes and the tokens it receives, both (ranks,).

    pairs: those of one head and sample in tiles that are not empty. seconds: of one layer's forward and backward pass.
    """

    layout: Layout
    pairs: Tensor
    received: Tensor
    seconds: float

    @property
    def imbalance(self) -> float:
        """The pairs of the slowest rank over the mean."""
        mean = float(self.pairs.mean())
        return float(self.pairs.max()) / mean if mean else 1.0


def estimate(layout: Layout, work: Tensor, tiles_open: Tensor, *, machine: Machine, layer: LayerSize) -> Estimate:
    """The estimate of a layout, for the `work` of each token (L,) and the tiles that are not empty (tiles, tiles)."""
    length, block, tiles = layout.length, block_of(layout.length), tiles_open.shape[0]
    pairs = _pairs(layout, work.double(), tiles_open)
    # how many tokens of each tile each rank holds
    places = layout.owner * tiles + torch.arange(length) // block
    counts = places.bincount(minlength=layout.ranks * tiles).view(layout.ranks, tiles)
    wanted = ((counts > 0).float() @ tiles_open.float()) > 0
    received = (wanted * (counts.sum(0) - counts)).sum(1)
    return Estimate(layout, pairs, received, seconds_of(pairs, received, machine=machine, layer=layer))


def _pairs(layout: Layout, work: Tensor, tiles_open: Tensor) -> Tensor:
    """What each rank computes: the work of its tokens, and what short runs in one tile cost each other."""
    pairs = torch.zeros(layout.ranks, dtype=torch.double).index_add_(0, layout.owner, work)
    runs = int((layout.owner.diff() != 0).sum()) + 1
    if runs * BLOCK <= layout.length or runs <= layout.ranks:
        # long runs are attended to one by one, each in tiles of its own
        return pairs
    block, tiles = block_of(layout.length), tiles_open.shape[0]
    per_rank = -(-max(len(tokens) for tokens in layout.tokens) // block)
    tile_of, where = layout.owner * per_rank + layout.slot // block, torch.arange(layout.length) // block
    counts = (tile_of * tiles + where).bincount(minlength=layout.ranks * per_rank * tiles).view(-1, tiles).float()
    width = where.bincount(minlength=tiles).float()
    # the rows of a tile of the rank share the columns that any of them needs
    together = counts.sum(1) * (((counts > 0).float() @ tiles_open.float() > 0).float() @ width)
    apart = counts @ (tiles_open.float() @ width)
    factor = torch.where(apart > 0, together / apart, 1.0).double()
    of_tile = torch.zeros(layout.ranks * per_rank, dtype=torch.double).index_add_(0, tile_of, work)
    return (of_tile * factor).view(layout.ranks, per_rank).sum(1)


def seconds_of(pairs: Tensor, received: Tensor, *, machine: Machine, layer: LayerSize) -> float:
    """Seconds of one layer's forward and backward pass, by the slowest rank and the busiest one."""
    compute = layer.flops(float(pairs.max()), FORWARD + BACKWARD) / machine.flops
    moved = float(received.max()) * (layer.token_bytes + layer.gradient_bytes) / machine.bandwidth
    return compute + moved + 2 * machine.latency


def work_of(mask: Mask | None, length: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """The pairs that each token computes (L,), in tiles that are not empty, and the tiles that may be needed.

    A function is asked of one row of each tile only, where the call runs: it decides who gets which token, not what is
    sent or computed.
    """
    block, count = block_of(length), -(-length // block_of(length))
    widths = torch.arange(length).div(block, rounding_mode="floor").bincount(minlength=count).double()
    if mask is None:
        return torch.full((length,), float(length)), torch.ones(count, count, dtype=torch.bool)
    host = on_host(mask)
    tiles_open, _ = open_tiles(host, length, length)

    def work() -> Tensor:
        if has_function(mask):
            rows = torch.arange(count) * block + (widths.long() - 1) // 2
            kinds = Picked(mask, rows, torch.arange(length), length, length).to(device).tiles(
                count, length, block=(1, block)
            ).cpu()  # fmt: skip
        else:
            kinds = host.tiles(length, length, block=(block, block))
        of_tile = ((kinds != EMPTY).double() @ widths).flatten(0, 1).mean(0)
        return of_tile.repeat_interleave(block)[:length]

    return derived(mask, ("work", length), work), tiles_open


def candidates(work: Tensor, ranks: int) -> Iterator[Layout]:
    """The layouts that "auto" compares, those with the longest runs first."""
    length = len(work)
    yield contiguous(length, ranks)
    if ranks > 1:
        yield zigzag(length, ranks)
        yield from (balanced(work, ranks, pieces=pieces) for pieces in pieces_of(length, ranks))


def pieces_of(length: int, ranks: int) -> tuple[int, ...]:
    """How many runs a rank may hold of a balanced layout: runs of very few tokens gain nothing."""
    return tuple(pieces for pieces in PIECES if length >= FEWEST * ranks * pieces) or PIECES[:1]


def compare(
    mask: Mask | None, length: int, ranks: int, *, machine: Machine, layer: LayerSize, device: torch.device
) -> list[Estimate]:
    """The estimates of all candidates, in their order."""
    work, tiles_open = work_of(mask, length, device)
    return [estimate(layout, work, tiles_open, machine=machine, layer=layer) for layout in candidates(work, ranks)]


def cheapest(estimates: list[Estimate]) -> Estimate:
    """Of the estimates that are nearly the least, the one that receives least."""
    least = min(e.seconds for e in estimates)
    return min((e for e in estimates if e.seconds <= NEARLY * least), key=lambda e: float(e.received.max()))
