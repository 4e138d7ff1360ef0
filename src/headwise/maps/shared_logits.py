"""SharedLogits: the masked scores of a map that ranks share, read whole, and alike, on every rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from headwise.maps.indices import Taken
from headwise.maps.logits import Logits

if TYPE_CHECKING:
    from headwise.maps.shared_map import SharedMap


class SharedLogits(Logits):
    """The masked scores of a map that ranks share; each reading is collective."""

    _source: SharedMap

    def _block(self, taken: tuple[Taken, ...]) -> Tensor:
        return self._source._entries("logits", taken, self._source.local.logits._block)

    def _points(self, at: tuple[Tensor, ...]) -> Tensor:
        return self._source._pairs("logits", at, self._source.local.logits._points)
