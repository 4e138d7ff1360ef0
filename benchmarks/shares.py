"""What ranks share, counted: the bytes that they send, the tiles that they compute, and the work of the slowest.

Nothing is timed: the counts are of masks, layouts and what a rank really sends, and are the same on every machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
import torch.distributed as dist

import headwise as hw
from headwise.distributed.costs import MACHINES, Estimate, LayerSize, cheapest, compare
from headwise.distributed.exchange import counted
from headwise.distributed.layouts import Layout
from headwise.distributed.needed_keys import needs, seen_by
from headwise.masks import Mask
from headwise.masks.simplification import narrowed, runs
from headwise.masks.tiles import EMPTY

__all__ = ["Count", "counts", "masks", "sent", "tiles"]

HEADS, WIDTH, ITEMSIZE = 2, 16, 4
LENGTH = 8192
# of what a rank sends, on processes; of the tiles, long enough that their edges weigh little
SENT, COUNTED, SHARED = (2, 4), (2, 4, 8), (2, 3, 4, 7, 8, 16, 32, 64)
WINDOW_RANKS = 8
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Count:
    """One count: of which mask and ranks it is largest, how large, and how large it may be."""

    name: str
    at: str
    ratio: float
    target: float


def masks(length: int) -> dict[str, Mask | None]:
    """Seven masks that leave their queries very different work."""
    return {
        "none": None,
        "causal": hw.causal(),
        "window": hw.causal() & hw.window(before=length // 16 - 1),
        "documents": hw.causal() & hw.documents(_documents(length)),
        "padding": hw.causal() & hw.lengths([length // 2]),
        "prefix and window": hw.causal() & (hw.window(before=length // 32) | hw.prefix(length // 64)),
        "prefix": hw.causal() | hw.prefix(length // 4),
    }


def counts(on_processes: Callable[..., list[dict[str, int]]]) -> Iterator[Count]:
    """Every count, the largest over the seven masks. on_processes: runs a task on so many processes of one group."""
    token = 2 * HEADS * WIDTH * ITEMSIZE
    some, long = masks(LENGTH), masks(4 * LENGTH)
    found = {ranks: on_processes(ranks, sent, LENGTH) for ranks in (*SENT, WINDOW_RANKS)}
    whole = {(name, ranks): sum(each[name] for each in found[ranks]) for ranks in found for name in some}
    bytes_ = {
        (name, ranks): whole[name, ranks] / (_received(some[name], LENGTH, ranks) * token)
        for name in some
        for ranks in SENT
    }
    yield _largest("bytes forward / bound of the layout", bytes_, 1.0)
    # a ring passes every key and value on to every rank
    ring = LENGTH * (WINDOW_RANKS - 1) * token
    key = ("window", WINDOW_RANKS)
    yield _largest("window of length/16: bytes / a ring's", {key: whole[key] / ring}, 1 / 12)
    pairs = {
        (name, ranks): tiles(mask, _estimate(mask, 4 * LENGTH, ranks).layout)
        for name, mask in long.items()
        for ranks in COUNTED
    }
    yield _largest("tiles computed / tiles open", pairs, 1.02)
    work = {(name, n): _estimate(mask, 4 * LENGTH, n).imbalance for name, mask in long.items() for n in SHARED}
    yield _largest("slowest / mean work", work, 1.05)


def sent(_: int, length: int) -> dict[str, int]:
    """Bytes that this rank sends in a forward under each mask: the keys and values that others need of it."""
    found = {}
    for name, mask in masks(length).items():
        spread = hw.distributed.spread(length, dist.group.WORLD, mask=mask)
        q, k, v = (torch.randn(1, HEADS, len(spread.tokens), WIDTH) for _ in "qkv")
        with counted() as traffic, torch.no_grad():
            hw.distributed.attention(q, k, v, mask=mask, spread=spread, way="gather")
        found[name] = traffic.bytes
    return found


def tiles(mask: Mask | None, layout: Layout) -> float:
    """The pairs in tiles of 128 that all ranks compute, over those of the whole map."""
    length = layout.length
    computed = 0.0
    for held in layout.tokens:
        for run in runs(held):
            rows = torch.arange(run.start, run.stop)
            seen = torch.ones(length, dtype=torch.bool) if mask is None else seen_by(mask, rows, length, length)
            columns = seen.nonzero()[:, 0]
            here = narrowed(mask, rows, columns, sizes=(length, length))
            computed += _pairs(here, len(rows), len(columns))
    return computed / _pairs(mask, length, length)


def _documents(length: int) -> torch.Tensor:
    """Ids (length,) of sixteen documents of very different lengths."""
    lengths = torch.tensor([1.0, 9, 2, 7, 1, 5, 3, 12, 1, 2, 8, 4, 6, 3, 2, 10])
    ends = (lengths.cumsum(0) / lengths.sum() * length).long()
    return torch.bucketize(torch.arange(length), ends, right=True)


def _pairs(mask: Mask | None, rows: int, columns: int) -> float:
    """The pairs in tiles of 128 that are not empty, of the sample and head that has most."""
    if mask is None:
        return float(rows * columns)
    kinds = mask.tiles(rows, columns) != EMPTY
    heights, widths = (torch.tensor([len(part) for part in torch.arange(n).split(128)]) for n in (rows, columns))
    return float((kinds * heights[:, None] * widths).flatten(2).sum(-1).max())


def _estimate(mask: Mask | None, length: int, ranks: int) -> Estimate:
    """The estimate of the layout that "auto" takes."""
    return cheapest(compare(mask, length, ranks, machine=MACHINES["cpu"], layer=LayerSize(), device=CPU))


def _received(mask: Mask | None, length: int, ranks: int) -> int:
    """The keys that all ranks need of others: what must be sent, whatever the way."""
    return int(needs(mask, _estimate(mask, length, ranks).layout).received.sum())


def _largest(name: str, ratios: Mapping[tuple[str, int], float], target: float) -> Count:
    """The count whose ratio is the largest of these, by mask and ranks."""
    (mask, ranks), ratio = max(ratios.items(), key=lambda item: item[1])
    return Count(name, f"{mask}, {ranks} ranks", ratio, target)
