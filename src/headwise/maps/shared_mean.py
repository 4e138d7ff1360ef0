"""SharedMean: the mean of the heads of a map that ranks share, read whole, and alike, on every rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from headwise.errors import ArgumentError
from headwise.maps import shared_entries
from headwise.maps.heads import HeadMean
from headwise.maps.indices import Taken
from headwise.maps.pooling import pool_columns
from headwise.maps.shared_entries import SharedAxes
from headwise.maps.statistics import MapPart, Picture
from headwise.maps.strips import exact
from headwise.maps.weights import Sums

if TYPE_CHECKING:
    from headwise.maps.shared_map import SharedMap


class SharedMean(HeadMean):
    """The weights of a map that ranks share, averaged over its heads, (B, 1, Lq, Lk); made by `mean_heads`.

    Each reading is collective, as those of the map are. Where ranks share heads, the first one gathers the queries and
    keys of all heads for this rank's rows, since no mean of means would do.
    """

    def __init__(self, source: SharedMap) -> None:
        if source.shape[1] == 0:
            raise ArgumentError(f"a mean needs one head at least, but the map is {tuple(source.shape)}")
        self._source: SharedMap = source
        self._kept: Sums | None = None
        self._mean: HeadMean | None = None

    @property
    def axes(self) -> SharedAxes:
        # every rank has all heads of its rows
        return SharedAxes(None, self._source.axes.rows)

    @property
    def local(self) -> HeadMean:
        """The mean of all heads in this rank's rows."""
        self._ready()
        return self._part

    def topk(self, k: int) -> tuple[Tensor, Tensor]:
        k = self._checked_k(k)
        self._ready()
        with exact(self._part._call):
            self.axes.agree(f"topk({k}) of the mean")
            values, keys = self._part._largest(k)
            return self.axes.all_rows(values), self.axes.all_rows(keys)

    def pooled(self, h: int, w: int, *, how: str = "mean") -> Tensor:
        h, w, how = self._checked_picture(h, w, how)
        self._ready()
        call, rows = self._part._call, self.axes.rows
        with exact(call):
            self.axes.agree(f"pooled({h}, {w}, how={how}) of the mean")
            picture = Picture(call, h, w, how, part=None if rows is None else MapPart(rows.own, rows.length))
            for strip in self._part._strips(call):
                weights = self._part._spread(strip.part(call), strip)
                picture.take((strip.samples, slice(0, 1)), strip.rows, pool_columns(weights, w, how))
            return self.axes.total(picture.totals()[0][:, :1].contiguous(), picture.joins[0])

    def detach(self) -> SharedMean:
        return self

    def to(self, device: torch.device | str) -> SharedMean:
        self._source.to(device)
        return self

    @property
    def _part(self) -> HeadMean:
        if self._mean is None:
            self._mean = HeadMean(self._source.with_all_heads())
        return self._mean

    def _read_sums(self) -> Sums:
        return Sums(*(t.clone() for t in self._sums()))

    def _sums(self) -> Sums:
        self._ready()
        if self._kept is None:
            own = self._part._sums()
            with exact(self._part._call):
                self.axes.agree("entropy and received of the mean")
                rows = self.axes.all_rows(torch.stack((own.entropy, own.mass), -1))
                received = self.axes.total(own.received.double(), "sum").to(self.dtype)
                entropy, mass = rows.unbind(-1)
                self._kept = Sums(entropy, mass, received)
        return self._kept

    def _block(self, taken: tuple[Taken, ...]) -> Tensor:
        part, like = self._part._block, torch.empty(0, dtype=self.dtype, device=self.device)
        self.axes.agree(f"the mean at {taken}")
        return shared_entries.block(self.axes, self.shape, taken, part, like)

    def _points(self, at: tuple[Tensor, ...]) -> Tensor:
        part, like = self._part._points, torch.empty(0, dtype=self.dtype, device=self.device)
        self.axes.agree(f"the mean at {[t.tolist() for t in at]}")
        return shared_entries.points(self.axes, at, part, like)
