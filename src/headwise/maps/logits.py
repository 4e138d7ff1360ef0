"""Logits: the masked scores of a map, lazy as the map is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from headwise.maps import blocks
from headwise.maps.indices import Taken
from headwise.maps.matrix import LazyMatrix

if TYPE_CHECKING:
    from headwise.maps.map import AttentionMap


class Logits(LazyMatrix):
    """The masked scores of a map, (B, Hq, Lq, Lk), lazy as the map is; -inf where a pair may not attend."""

    def __init__(self, source: AttentionMap) -> None:
        self._source = source

    @property
    def shape(self) -> torch.Size:
        return self._source.shape

    @property
    def dtype(self) -> torch.dtype:
        return self._source.dtype

    @property
    def device(self) -> torch.device:
        return self._source.device

    def __repr__(self) -> str:
        return f"Logits(of={self._source!r})"

    def _ready(self) -> None:
        self._source._ready()

    def _block(self, taken: tuple[Taken, ...]) -> Tensor:
        return blocks.logits(blocks.block(self._source._call, taken))

    def _points(self, at: tuple[Tensor, ...]) -> Tensor:
        scores, allowed = blocks.pair_scores(self._source._call, at)
        return scores if allowed is None else torch.where(allowed, scores, float("-inf"))
