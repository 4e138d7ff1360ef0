"""Map encoding: bytes for every head, exact rows for the chosen tokens, sums."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from headwise.maps import AttentionMap, HeadMean
from headwise.pages.block_maxima import SOFT, Coded, Squares, Tally
from headwise.pages.weight_codes import largest_of_blocks

__all__ = [
    "CLOSED", "NOTHING", "THUMB", "Carried", "MapReading", "bytes_needed", "carry", "closed", "entropies",
    "fitting_block", "mean_of_some", "read", "thumbs",
]  # fmt: skip

Map = AttentionMap | HeadMean
# the longest side of a small picture in the overview; a map that is no longer is its own
THUMB = 32
# how many weights are computed at once
ENTRIES = 1 << 22
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


class MapReading(NamedTuple):
    """What a page needs of a map of B samples, from one pass over it; entropy, received and distance as its own."""

    coded: Coded
    entropy: Tensor
    received: Tensor
    distance: Tensor


@torch.no_grad()
def read(attention: Map, block: int) -> MapReading:
    """What a page needs of a map. block: how many tokens one byte stands for, each way."""
    if isinstance(attention, HeadMean):
        coded = _coded_mean(attention, block)
    else:
        coded = Coded(*attention.reduce((Squares, block))[0])
    return MapReading(coded, attention.entropy(), attention.received(), attention.distance())


@torch.no_grad()
def carry(
    attention: Map, *, sample: int, block: int, exact: Sequence[int], cached: MapReading | None = None
) -> Carried:
    """What a page is to have of one sample of a map. block: how many tokens one byte stands for, each way.

    cached: what `read` gives of the map with this block; None: it is read.
    """
    reading = cached if cached is not None else read(attention, block)
    _, H, Lq, Lk = attention.shape
    row_entropy, has_none = reading.entropy[sample].float().cpu(), reading.coded.is_empty[sample].cpu()
    codes = reading.coded.codes[sample].cpu()
    longest = max(codes.shape[1:])
    thumbs = None if longest <= THUMB else largest_of_blocks(codes, -(-longest // THUMB))
    sides = (min(block, Lq), min(block, Lk))
    hidden, nan, later, own_place = reading.coded.counts[sample].sum(0).tolist()
    return Carried(
        lengths=(Lq, Lk),
        block=sides,
        codes=codes,
        thumbs=thumbs,
        exact={row: _marked(*_strip(attention, sample, slice(row, row + 1))) for row in exact if row < Lq},
        entropy=_means_of_some(row_entropy, has_none, sides[0]),
        mean_entropy=_means_of_some(row_entropy, has_none, Lq)[:, 0],
        received=_means(reading.received[sample], sides[1]),
        distance=reading.distance[sample].float().cpu(),
        # queries see their own place, there are later keys, and none of these is seen
        is_causal=Lq > 1 and later == 0 and own_place > 0,
        hidden=hidden / (H * Lq * Lk),
        empty=int(has_none.sum()),
        nan=nan,
    )


@torch.no_grad()
def entropies(attention: Map, sample: int) -> Tensor:
    """The entropy of each row of one sample (H, Lq), NOTHING where it may attend to nothing."""
    reading = read(attention, _thumb_block(attention))
    return reading.entropy[sample].float().cpu().masked_fill(reading.coded.is_empty[sample].cpu(), NOTHING)


def mean_of_some(values: Tensor, axis: int) -> Tensor:
    """The mean along an axis of the values that are there, NOTHING where none is.

    >>> mean_of_some(torch.tensor([[1.0, NOTHING, 3.0], [NOTHING, NOTHING, NOTHING]]), 1)
    tensor([ 2., -2.])
    """
    there = values != NOTHING
    means = values.where(there, 0.0).sum(axis) / there.sum(axis).clamp(min=1)
    return means.where(there.any(axis), NOTHING)


@torch.no_grad()
def thumbs(attention: Map, sample: int) -> Tensor:
    """Small pictures of all heads of one sample as codes, (H, at most 32, at most 32)."""
    return read(attention, _thumb_block(attention)).coded.codes[sample].cpu()


def _thumb_block(attention: Map) -> int:
    return -(-max(attention.shape[2:]) // THUMB)


def _coded_mean(mean: HeadMean, block: int) -> Coded:
    """The squares of a mean of heads, which is read strip by strip."""
    B, H, Lq, Lk = mean.shape
    tally = Tally(mean.shape, block, mean.dtype, mean.device)
    for sample in range(B):
        for rows in _runs(H, Lq, Lk):
            weights, hidden = _strip(mean, sample, rows)
            tally.take(
                (slice(sample, sample + 1), slice(0, H)), rows, weights[None], None if hidden is None else hidden[None]
            )
    return tally.coded(*tally.totals())


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


def _runs(H: int, Lq: int, Lk: int) -> Iterator[slice]:
    """Runs of rows."""
    step = max(1, ENTRIES // (H * Lk))
    return (slice(start, min(start + step, Lq)) for start in range(0, Lq, step))


def _strip(attention: Map, sample: int, rows: slice) -> tuple[Tensor, Tensor | None]:
    """Some rows of weights (H, rows, Lk), and where pairs may not attend; None: nowhere."""
    weights = attention[sample, :, rows]
    # only what weighs nothing can be hidden, and the scores that tell take as long as the weights
    if bool((weights > 0).all()):
        return weights, None
    # the mean of heads has no scores: what no head sees is what weighs nothing
    if isinstance(attention, HeadMean):
        return weights, weights == 0
    return weights, closed(weights, attention.logits[sample, :, rows])


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
