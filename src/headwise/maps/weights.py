"""WeightMap: what can be read from weights, whether of each head or of their mean."""

from __future__ import annotations

from abc import abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor

from headwise.errors import ArgumentError
from headwise.maps.blocks import softmax
from headwise.maps.drawn import Drawn
from headwise.maps.indexing import whole
from headwise.maps.matrix import LazyMatrix
from headwise.maps.pooling import bins, pool_columns, pool_rows, runs_of_bins
from headwise.maps.recompute import Reading, assembled, differentiable, of_rows
from headwise.maps.strips import Strip, exact
from headwise.ops.call import Call

# the largest entries of a long row are looked for in runs of this many, where FEW times as many runs are there
RUN, FEW = 64, 4


class Sums(NamedTuple):
    """What one pass over weights p gives, with H heads.

    entropy (B, H, Lq): -sum p log p, in nats. mass (B, H, Lq): the sum of a row. received (B, H, Lk): of a column.
    """

    entropy: Tensor
    mass: Tensor
    received: Tensor


class WeightMap(Drawn, LazyMatrix):
    """A lazy matrix of weights, (B, H, Lq, Lk), made from the strips of a call."""

    _call: Call

    @abstractmethod
    def _mixed(self, weights: Tensor) -> Tensor:
        """This map's weights (b, h, rows, Lk), from those of the call's heads."""

    @abstractmethod
    def _strips(self, call: Call, rows: list[slice] | None = None) -> list[Strip]:
        """Strips that cover the map, each with the heads that one of its weights needs."""

    @abstractmethod
    def _sums(self) -> Sums:
        """The sums without gradients, kept."""

    def entropy(self) -> Tensor:
        """-sum p log p of each row over its keys, in nats, (B, H, Lq); 0 on a row that may attend to nothing.

        With a sink a row sums to less than 1, and this is the entropy of its weights as they are: the sink's own share
        is not a term of it.
        """
        return self._read_sums().entropy

    def received(self) -> Tensor:
        """The weight that each key gets from all queries, (B, H, Lk): the sums of the columns."""
        return self._read_sums().received

    def distance(self) -> Tensor:
        """How many tokens the weights look back on average, (B, H): the mean of i - j by weight, over all rows.

        i and j are the positions of query and key, the last query at the last key. A look at the query's own place
        counts 0, a look ahead counts negative; 0 for a head without any weight.
        """
        sums = self._read_sums()
        Lq, Lk = self.shape[2:]
        # wide: the two sums grow with the square of the length, and nearly cancel
        mass, received = sums.mass.double(), sums.received.double()
        i = torch.arange(Lk - Lq, Lk, device=self.device, dtype=torch.float64)
        j = torch.arange(Lk, device=self.device, dtype=torch.float64)
        total = mass.sum(-1)
        back = (mass * i).sum(-1) - (received * j).sum(-1)
        return (back / total.masked_fill(total == 0, 1.0)).to(self.dtype)

    def topk(self, k: int) -> tuple[Tensor, Tensor]:
        """The k largest weights of each row and the keys they belong to, both (B, H, Lq, k), the largest first.

        A row that may attend to fewer than k keys is filled up with weights of 0, at keys that mean nothing; which of
        equal weights comes first is open.
        """
        B, H, Lq, Lk = self.shape
        k = whole("k", k)
        if not 0 <= k <= Lk:
            raise ArgumentError(f"k must lie in 0..Lk={Lk}, since a row has Lk keys; got {k}")
        self._ready()

        def search(part: Call, strip: Strip) -> tuple[Tensor, ...]:
            return largest(self._spread(part, strip), k)

        shape = (B, H, Lq, k)
        with exact(self._call):
            values, places = assembled(self._call, self._strips(self._call), search, of_rows, (shape, shape))
        # of a map without rows there are no integers either
        places = places.long()
        reading = Reading(
            values=lambda: (values,),
            shapes=(shape,),
            strips=self._strips,
            of=lambda part, strip: (self._spread(part, strip).gather(-1, strip.of_rows(places)),),
            cut=of_rows,
        )
        return differentiable(self._call, reading)[0], places

    def pooled(self, h: int, w: int, *, how: str = "mean") -> Tensor:
        """A picture of the map, (B, H, h, w): each pixel the mean or the maximum of its rows and columns.

        The pixels' borders are those of torch's adaptive pooling, so h and w may also exceed Lq and Lk. how: "mean" or
        "max".
        """
        B, H, Lq, Lk = self.shape
        h, w = whole("h", h), whole("w", w)
        if min(h, w) < 1 or 0 in (Lq, Lk):
            raise ArgumentError(f"a picture needs h, w, Lq and Lk of 1 or more, but got h={h}, w={w}, Lq={Lq}, Lk={Lk}")
        if how not in ("mean", "max"):
            raise ArgumentError(f'how must be "mean" or "max"; got "{how}"')
        self._ready()
        runs = runs_of_bins(bins(Lq, h), self._call)

        def picture(weights: Tensor, strip: Strip) -> Tensor:
            taken = runs[strip.rows.start, strip.rows.stop]
            own = [(start - strip.rows.start, stop - strip.rows.start) for start, stop in bins(Lq, h)[taken]]
            return pool_rows(pool_columns(weights, w, how), own, how)

        def picture_of(part: Call, strip: Strip) -> tuple[Tensor, ...]:
            return (picture(self._spread(part, strip), strip),)

        def place(values: tuple[Tensor | None, ...], strip: Strip) -> tuple[Tensor | None, ...]:
            taken = runs[strip.rows.start, strip.rows.stop]
            return tuple(None if t is None else t[strip.samples, strip.heads, taken] for t in values)

        shapes = ((B, H, h, w),)

        def values() -> tuple[Tensor, ...]:
            with exact(self._call):
                return assembled(self._call, all_strips(self._call), picture_of, place, shapes)

        def all_strips(call: Call) -> list[Strip]:
            return self._strips(call, [slice(*run) for run in runs])

        return differentiable(self._call, Reading(values, shapes, all_strips, picture_of, place))[0]

    def _read_sums(self) -> Sums:
        """The sums, with gradients where they are wanted; never the kept tensors themselves."""
        self._ready()
        B, H, Lq, Lk = self.shape

        def cut(values: tuple[Tensor | None, ...], strip: Strip) -> tuple[Tensor | None, ...]:
            *rows, received = values
            return (*of_rows(tuple(rows), strip), None if received is None else strip.of_columns(received))

        reading = Reading(
            values=lambda: tuple(t.clone() for t in self._sums()),
            shapes=((B, H, Lq), (B, H, Lq), (B, H, Lk)),
            strips=self._strips,
            of=lambda part, strip: sums_of(self._weights(part)),
            cut=cut,
        )
        return Sums(*differentiable(self._call, reading))

    def _weights(self, part: Call) -> Tensor:
        """The weights of a strip's call, differentiable."""
        return self._mixed(softmax(part))

    def _spread(self, part: Call, strip: Strip) -> Tensor:
        """The same with all columns."""
        return strip.spread(self._weights(part), self.shape[3])


def sums_of(weights: Tensor) -> Sums:
    """The sums of a strip of weights (b, h, rows, Lk), differentiable."""
    # 1 in the place of 0, where the logarithm has no derivative and the product none to give
    logs = torch.where(weights > 0, weights, 1.0).log()
    return Sums(-(weights * logs).sum(-1), weights.sum(-1), weights.sum(-2))


def largest(weights: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest of each row (b, h, rows, Lk), and where they are.

    They lie in the k runs with the largest maxima, so that only these are searched through where they are few.
    """
    runs = weights.shape[-1] // RUN
    if runs <= FEW * k or k == 0:
        found = weights.topk(k, dim=-1)
        return found.values, found.indices
    # the last entries, too few for a run, are searched through too
    whole = runs * RUN
    best = weights[..., :whole].unflatten(-1, (runs, RUN)).amax(-1).topk(k, dim=-1).indices
    within = torch.arange(RUN, device=weights.device)
    tail = torch.arange(whole, weights.shape[-1], device=weights.device).expand(*weights.shape[:-1], -1)
    places = torch.cat([(best[..., None] * RUN + within).flatten(-2), tail], dim=-1)
    found = weights.gather(-1, places).topk(k, dim=-1)
    return found.values, places.gather(-1, found.indices)
