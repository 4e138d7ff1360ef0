"""Carrying: a map of attention as a page carries it: bytes for every head, exact rows for the chosen tokens, sums."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from headwise.maps import AttentionMap, HeadMean
from headwise.pages.codes import encoded, largest_of_blocks

__all__ = [
    "CLOSED", "NOTHING", "THUMB", "Carried", "bytes_needed", "carry", "closed", "entropies", "fitting_block",
    "mean_of_some", "sums_of", "thumbs",
]  # fmt: skip

Map = AttentionMap | HeadMean
# the longest side of a small picture in the overview; a map that is no longer is its own
THUMB = 32
# how many weights are computed at once
ENTRIES = 1 << 22
# models that add a large negative number in the place of -inf, from -10,000 on, mean the same; no score comes near
SOFT = -5000.0
# in the place of a weight or an entropy, which are never negative: the pair, or the whole row, may not attend
CLOSED, NOTHING = -1.0, -2.0


@dataclass(frozen=True, eq=False)
class Carried:
    """One sample of a map (H heads, Lq queries, Lk keys), in blocks of block[0] × block[1] tokens.

    codes (H, rows, columns), thumbs (H, at most 32, at most 32): uint8, the largest of each block. exact: query ->
    its weights (H, Lk), CLOSED where it may not attend, NOTHING in a row that may attend to nothing. entropy (H, rows),
    received (H, columns): means over a block, of entropies over the rows that have one, else NOTHING. mean_entropy
    (H,): over all rows that have one, else NOTHING; distance (H,). is_causal: no query sees a later key. hidden: the
    share of pairs that may not attend. empty, nan: rows of all heads that may attend to nothing, or hold NaN.
    """

    lengths: tuple[int, int]
    block: tuple[int, int]
    codes: Tensor
    thumbs: Tensor | None
    exact: Mapping[int, Tensor]
    entropy: Tensor
    received: Tensor
    mean_entropy: Tensor
    distance: Tensor
    is_causal: bool
    hidden: float
    empty: int
    nan: int


Sums = tuple[Tensor, Tensor, Tensor]


@torch.no_grad()
def sums_of(made: Map) -> Sums:
    """Entropy (B, H, Lq), weight received (B, H, Lk) and distance (B, H) of all samples of a map."""
    return made.entropy(), made.received(), made.distance()


@torch.no_grad()
def carry(made: Map, *, sample: int, block: int, exact: Sequence[int], sums: Sums | None = None) -> Carried:
    """What a page is to have of one sample of a map. block: how many tokens one byte stands for, each way.

    sums: those of the map; None: they are computed.
    """
    entropy, received, distance = sums if sums is not None else sums_of(made)
    _, H, Lq, Lk = made.shape
    facts, pooled, without = _Facts(Lq, Lk), [], []
    for rows in _runs(H, Lq, Lk, block):
        weights, hidden = _strip(made, sample, rows)
        facts.add(weights, hidden, rows.start)
        pooled.append(encoded(weights, hidden, block).cpu())
        without.append(hidden.all(-1) if hidden is not None else weights.new_zeros(weights.shape[:2], dtype=torch.bool))
    own, has_none = entropy[sample].float().cpu(), torch.cat(without, dim=1).cpu()
    codes = torch.cat(pooled, dim=1)
    longest = max(codes.shape[1:])
    thumbs = None if longest <= THUMB else largest_of_blocks(codes, -(-longest // THUMB))
    sides = (min(block, Lq), min(block, Lk))
    return Carried(
        lengths=(Lq, Lk),
        block=sides,
        codes=codes,
        thumbs=thumbs,
        exact={row: _marked(*_strip(made, sample, slice(row, row + 1))) for row in exact if row < Lq},
        entropy=_means_of_some(own, has_none, sides[0]),
        mean_entropy=_means_of_some(own, has_none, Lq)[:, 0],
        received=_means(received[sample], sides[1]),
        distance=distance[sample].float().cpu(),
        is_causal=facts.is_causal,
        hidden=facts.hidden / (H * Lq * Lk),
        empty=facts.empty,
        nan=facts.nan,
    )


@torch.no_grad()
def entropies(made: Map, sample: int) -> Tensor:
    """The entropy of each row of one sample (H, Lq), NOTHING where it may attend to nothing."""
    _, H, Lq, Lk = made.shape
    hidden = (_strip(made, sample, rows)[1] for rows in _runs(H, Lq, Lk, 1))
    lengths = (rows.stop - rows.start for rows in _runs(H, Lq, Lk, 1))
    without = [
        each.all(-1).cpu() if each is not None else torch.zeros(H, count, dtype=torch.bool)
        for each, count in zip(hidden, lengths, strict=True)
    ]
    return made.entropy()[sample].float().cpu().masked_fill(torch.cat(without, dim=1), NOTHING)


def mean_of_some(values: Tensor, axis: int) -> Tensor:
    """The mean along an axis of the values that are there, NOTHING where none is.

    >>> mean_of_some(torch.tensor([[1.0, NOTHING, 3.0], [NOTHING, NOTHING, NOTHING]]), 1)
    tensor([ 2., -2.])
    """
    there = values != NOTHING
    means = values.where(there, 0.0).sum(axis) / there.sum(axis).clamp(min=1)
    return means.where(there.any(axis), NOTHING)


@torch.no_grad()
def thumbs(made: Map, sample: int) -> Tensor:
    """Small pictures of all heads of one sample as codes, (H, at most 32, at most 32)."""
    _, H, Lq, Lk = made.shape
    block = -(-max(Lq, Lk) // THUMB)
    runs = [encoded(*_strip(made, sample, rows), block).cpu() for rows in _runs(H, Lq, Lk, block)]
    return torch.cat(runs, dim=1)


def fitting_block(shapes: Sequence[tuple[int, ...]], room: int, samples: int = 1) -> int | None:
    """The smallest block with which maps of these shapes (B, H, Lq, Lk) fit into so many bytes; None: none does.

    samples: how many of the B are carried.
    """
    longest = max(max(shape[2:]) for shape in shapes)
    # coarser than 32 by 32 a map is no map any more
    blocks = range(1, -(-longest // THUMB) + 1)
    return next((block for block in blocks if bytes_needed(shapes, block, samples) <= room), None)


def bytes_needed(shapes: Sequence[tuple[int, ...]], block: int, samples: int = 1) -> int:
    """The bytes of the blocks of data of a page, as base64."""
    total = 0
    for _, H, Lq, Lk in shapes:
        rows, columns = -(-Lq // min(block, Lq)), -(-Lk // min(block, Lk))
        small = THUMB**2 if max(rows, columns) > THUMB else 0
        total += H * (rows * columns + small + 4 * (rows + columns))
    return math.ceil(samples * total * 4 / 3)


def _runs(H: int, Lq: int, Lk: int, block: int) -> Iterator[slice]:
    """Runs of rows, each a whole number of blocks."""
    step = max(1, ENTRIES // (H * Lk * block)) * block
    return (slice(start, min(start + step, Lq)) for start in range(0, Lq, step))


def _strip(made: Map, sample: int, rows: slice) -> tuple[Tensor, Tensor | None]:
    """Some rows of weights (H, rows, Lk), and where pairs may not attend; None: nowhere."""
    weights = made[sample, :, rows]
    # only what weighs nothing can be hidden, and the scores that tell take as long as the weights
    if bool((weights > 0).all()):
        return weights, None
    # the mean of heads has no scores: what no head sees is what weighs nothing
    if isinstance(made, HeadMean):
        return weights, weights == 0
    return weights, closed(weights, made.logits[sample, :, rows])


def closed(weights: Tensor, logits: Tensor) -> Tensor:
    """Where a pair may not attend, from weights and scores of one shape.

    >>> closed(torch.tensor([0.0, 0.0, 1.0]), torch.tensor([-1e9, -200.0, 3.0])).tolist()
    [True, False, False]
    """
    return (logits == float("-inf")) | ((weights == 0) & (logits < SOFT))


def _marked(weights: Tensor, hidden: Tensor | None) -> Tensor:
    """One row of all heads (H, 1, Lk) as (H, Lk), marked where a pair may not attend."""
    row = weights[:, 0].float()
    if hidden is not None:
        row = row.masked_fill(hidden[:, 0], CLOSED).masked_fill(hidden[:, 0].all(-1, keepdim=True), NOTHING)
    return row.cpu()


class _Facts:
    """What holds for all pairs of a map (H, Lq, Lk), whose rows come in runs."""

    def __init__(self, Lq: int, Lk: int) -> None:
        self.offset, self.keys = Lk - Lq, Lk
        self.hidden = self.empty = self.nan = self.later = self.own = self.places = 0

    def add(self, weights: Tensor, hidden: Tensor | None, start: int) -> None:
        """Count the rows (H, rows, Lk) that begin with row `start`."""
        H, rows, _ = weights.shape
        self.nan += int(weights.sum(-1).isnan().sum())
        i = torch.arange(start, start + rows, device=weights.device)[:, None] + self.offset
        j = torch.arange(self.keys, device=weights.device)
        later, own = j > i, j == i
        self.places += int(later.sum())
        if hidden is None:
            self.later += H * int(later.sum())
            self.own += H * int(own.sum())
            return
        self.hidden += int(hidden.sum())
        self.empty += int(hidden.all(-1).sum())
        self.later += int((later & ~hidden).sum())
        self.own += int((own & ~hidden).sum())

    @property
    def is_causal(self) -> bool:
        """Whether queries see their own place, there are later keys, and none of these is seen."""
        return self.places > 0 and self.later == 0 and self.own > 0


def _means(sums: Tensor, block: int) -> Tensor:
    """(H, L) -> the mean of each block (H, L / block), float32; the last one may be shorter."""
    if block == 1:
        return sums.float().cpu()
    return F.avg_pool1d(sums.float(), block, ceil_mode=True).cpu()


def _means_of_some(values: Tensor, without: Tensor, block: int) -> Tensor:
    """(H, L) -> the mean of each block over the entries that have a value, (H, L / block); NOTHING where none has."""
    share = _means((~without).float(), block)
    means = _means(values.masked_fill(without, 0.0), block)
    return torch.where(share > 0, means / share, NOTHING)
