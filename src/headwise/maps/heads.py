"""HeadMean: the mean of a map's heads, lazy again."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import torch
from torch import Tensor

from headwise.errors import ArgumentError
from headwise.maps.blocks import picked
from headwise.maps.indices import Taken
from headwise.maps.strips import MapStrip, exact, strips
from headwise.maps.weights import Sums, WeightMap, sums_of
from headwise.ops.call import Call

if TYPE_CHECKING:
    from headwise.maps.map import AttentionMap


class HeadMean(WeightMap):
    """The weights of a map averaged over its heads, (B, 1, Lq, Lk); made by `AttentionMap.mean_heads`.

    It is read as a map is; what belongs to scores (logits, lse, max_logit) the mean of weights does not have.
    """

    def __init__(self, source: AttentionMap) -> None:
        if source.shape[1] == 0:
            raise ArgumentError(f"a mean needs one head at least, but the map is {tuple(source.shape)}")
        self._source, self._call = source, source._call
        self._kept: Sums | None = None

    @property
    def shape(self) -> torch.Size:
        B, _, Lq, Lk = self._source.shape
        return torch.Size((B, 1, Lq, Lk))

    @property
    def dtype(self) -> torch.dtype:
        return self._source.dtype

    @property
    def device(self) -> torch.device:
        return self._source.device

    @property
    def logits(self) -> NoReturn:
        """Refused: weights are averaged, and no scores belong to their mean."""
        _refuse("logits")

    @property
    def lse(self) -> NoReturn:
        """Refused: weights are averaged, and no scores belong to their mean."""
        _refuse("lse")

    def max_logit(self) -> NoReturn:
        """Refused: weights are averaged, and no scores belong to their mean."""
        _refuse("max_logit()")

    def mean_heads(self) -> HeadMean:
        """Itself: it has one head."""
        return self

    def detach(self) -> HeadMean:
        """The same without a way back to q and k."""
        return HeadMean(self._source.detach())

    def to(self, device: torch.device | str) -> HeadMean:
        """The same on another device."""
        return HeadMean(self._source.to(device))

    def cpu(self) -> HeadMean:
        """The same on the CPU."""
        return self.to("cpu")

    def __repr__(self) -> str:
        return f"HeadMean({tuple(self.shape)}, of={self._source!r})"

    def _ready(self) -> None:
        self._source._ready()

    def _block(self, taken: tuple[Taken, ...]) -> Tensor:
        heads = range(self._source.shape[1])
        # head by head, so that memory is that of one
        total = self._source._block((taken[0], slice(0, 1), *taken[2:]))
        for h in heads[1:]:
            total = total + self._source._block((taken[0], slice(h, h + 1), *taken[2:]))
        return picked(total / len(heads), (slice(None), taken[1]))

    def _points(self, at: tuple[Tensor, ...]) -> Tensor:
        heads = range(self._source.shape[1])
        found = [self._source._points((at[0], torch.full_like(at[1], h), *at[2:])) for h in heads]
        return torch.stack(found).mean(0)

    def _mixed(self, weights: Tensor) -> Tensor:
        return weights.mean(1, keepdim=True)

    def _strips(self, call: Call, rows: list[slice] | None = None) -> list[MapStrip]:
        return strips(call, whole_heads=True, rows=rows)

    def _sums(self) -> Sums:
        if self._kept is None:
            B, _, Lq, Lk = self.shape
            sizes = ((B, 1, Lq), (B, 1, Lq), (B, 1, Lk))
            with exact(self._call):
                total = Sums(*(torch.zeros(size, dtype=self.dtype, device=self.device) for size in sizes))
                for strip in self._strips(self._call):
                    found = sums_of(self._weights(strip.part(self._call)))
                    strip.of_rows(total.entropy).copy_(found.entropy)
                    strip.of_rows(total.mass).copy_(found.mass)
                    strip.of_columns(total.received).add_(found.received)
            self._kept = total
        return self._kept


def _refuse(name: str) -> NoReturn:
    raise ArgumentError(f"{name} belongs to scores, and a mean of weights has none: read it from the map of all heads")
