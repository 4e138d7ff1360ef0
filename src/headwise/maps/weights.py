"""WeightMap: what can be read from weights, whether of each head or of their mean."""

from __future__ import annotations

from abc import abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor

from headwise.errors import ArgumentError
from headwise.maps.blocks import softmax
from headwise.maps.display import Drawn
from headwise.maps.indices import whole
from headwise.maps.matrix import LazyMatrix
from headwise.maps.pooling import bins, pool_columns, pool_rows, runs_of_bins
from headwise.maps.recomputation import Recomputable, assembled, differentiable, of_rows
from headwise.maps.shared_entries import SharedAxes
from headwise.maps.statistics import largest
from headwise.maps.strips import MapStrip, exact
from headwise.ops.call import Call


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

    @property
    def axes(self) -> SharedAxes:
        """Which of its axes ranks share: none, but of what `watch` gives of a model on several ranks."""
        return SharedAxes()

    @abstractmethod
    def _mixed(self, weights: Tensor) -> Tensor:
        """This map's weights (b, h, rows, Lk), from those of the call's heads."""

    @abstractmethod
    def _strips(self, call: Call, rows: list[slice] | None = None) -> list[MapStrip]:
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
        k = self._checked_k(k)
        self._ready()
        shape = (*self.shape[:3], k)
        values, places = self._largest(k)
        reading = Recomputable(
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
        asked = self._checked_picture(h, w, how)
        self._ready()
        return differentiable(self._call, self._picture_reading(*asked))[0]

    def _checked_k(self, k: int) -> int:
        Lk = self.shape[3]
        k = whole("k", k)
        if not 0 <= k <= Lk:
            raise ArgumentError(f"k must lie in 0..Lk={Lk}, since a row has Lk keys; got {k}")
        return k

    def _checked_picture(self, h: int, w: int, how: str) -> tuple[int, int, str]:
        Lq, Lk = self.shape[2:]
        h, w = whole("h", h), whole("w", w)
        if min(h, w) < 1 or 0 in (Lq, Lk):
            raise ArgumentError(f"a picture needs h, w, Lq and Lk of 1 or more, but got h={h}, w={w}, Lq={Lq}, Lk={Lk}")
        if how not in ("mean", "max"):
            raise ArgumentError(f'how must be "mean" or "max"; got "{how}"')
        return h, w, how

    def _largest(self, k: int) -> tuple[Tensor, Tensor]:
        """The k largest of each row and their keys, without gradients."""
        B, H, Lq, _ = self.shape

        def search(part: Call, strip: MapStrip) -> tuple[Tensor, ...]:
            return largest(self._spread(part, strip), k)

        with exact(self._call):
            values, places = assembled(self._call, self._strips(self._call), search, of_rows, ((B, H, Lq, k),) * 2)
        # of a map without rows there are no integers either
        return values, places.long()

    def _picture(self, h: int, w: int, how: str) -> Tensor:
        """A picture of the map, without gradients."""
        reading = self._picture_reading(h, w, how)
        with exact(self._call):
            return assembled(self._call, reading.strips(self._call), reading.of, reading.cut, reading.shapes)[0]

    def _picture_reading(self, h: int, w: int, how: str) -> Recomputable:
        B, H, Lq, _ = self.shape
        runs = runs_of_bins(bins(Lq, h), self._call)

        def picture(weights: Tensor, strip: MapStrip) -> Tensor:
            taken = runs[strip.rows.start, strip.rows.stop]
            own = [(start - strip.rows.start, stop - strip.rows.start) for start, stop in bins(Lq, h)[taken]]
            return pool_rows(pool_columns(weights, w, how), own, how)

        def picture_of(part: Call, strip: MapStrip) -> tuple[Tensor, ...]:
            return (picture(self._spread(part, strip), strip),)

        def place(values: tuple[Tensor | None, ...], strip: MapStrip) -> tuple[Tensor | None, ...]:
            taken = runs[strip.rows.start, strip.rows.stop]
            return tuple(None if t is None else t[strip.samples, strip.heads, taken] for t in values)

        def all_strips(call: Call) -> list[MapStrip]:
            return self._strips(call, [slice(*run) for run in runs])

        return Recomputable(lambda: (self._picture(h, w, how),), ((B, H, h, w),), all_strips, picture_of, place)

    def _read_sums(self) -> Sums:
        """The sums, with gradients where they are wanted; never the kept tensors themselves."""
        self._ready()
        B, H, Lq, Lk = self.shape

        def cut(values: tuple[Tensor | None, ...], strip: MapStrip) -> tuple[Tensor | None, ...]:
            *rows, received = values
            return (*of_rows(tuple(rows), strip), None if received is None else strip.of_columns(received))

        reading = Recomputable(
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

    def _spread(self, part: Call, strip: MapStrip) -> Tensor:
        """The same with all columns."""
        return strip.spread(self._weights(part), self.shape[3])


def sums_of(weights: Tensor) -> Sums:
    """The sums of a strip of weights (b, h, rows, Lk), differentiable."""
    # 1 in the place of 0, where the logarithm has no derivative and the product none to give
    logs = torch.where(weights > 0, weights, 1.0).log()
    return Sums(-(weights * logs).sum(-1), weights.sum(-1), weights.sum(-2))
