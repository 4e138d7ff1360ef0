"""Weight gradients: the derivative of a scalar by each weight of a map, computed where it is indexed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from headwise.errors import ArgumentError, StaleMapError
from headwise.maps import blocks
from headwise.maps.indices import Taken
from headwise.maps.matrix import LazyMatrix
from headwise.maps.strips import MapStrip, exact, strips
from headwise.ops import reference
from headwise.ops.call import Call

if TYPE_CHECKING:
    from headwise.maps.map import AttentionMap

__all__ = [
    "NOT_ASKED",
    "STALE",
    "Attribution",
    "Backward",
    "EntrySums",
    "OutputGradient",
    "WeightGradient",
    "gradient_call",
]

STALE = "the values of a call must stay as they were when it ran, but have been changed in place since: read it before"
NOT_ASKED = "no gradients were collected while the model ran: watch it with gradients=True, then call backward()"
NOT_YET = "no gradient has reached this call: call backward() on a scalar computed from the output of the model"
UNKNOWN_AXES = "has an output whose order of axes could not be followed"


@dataclass(eq=False)
class OutputGradient:
    """The gradient of the output of one call of attention, once a backward pass has brought it.

    reason: why there will be none, "" where there may be one. total: (B, Hq, Lq, Dv), those of several backward passes
    added up, None: none has come. is_unread: whether one has come that could not be read.
    """

    reason: str = ""
    total: Tensor | None = None
    is_unread: bool = False

    def add(self, gradient: Tensor | None) -> None:
        """Add the gradient of one backward pass, (B, Hq, Lq, Dv), None: it cannot be read."""
        if gradient is None:
            self.is_unread = True
        else:
            gradient = gradient.detach()
            self.total = gradient.clone() if self.total is None else self.total + gradient

    def clear(self) -> None:
        """Forget what has come."""
        self.total, self.is_unread = None, False

    def gradient(self) -> Tensor:
        """(B, Hq, Lq, Dv); ArgumentError where none has come."""
        if reason := self.reason or (UNKNOWN_AXES if self.is_unread else ""):
            raise ArgumentError(f"the gradient of this call's weights is not available: it {reason}")
        if self.total is None:
            raise ArgumentError(NOT_YET)
        return self.total


class Backward(NamedTuple):
    """The two factors of the derivatives: the values of a call, (B, Hk, Lk, Dv), and the gradient of its output."""

    values: Callable[[], Tensor]
    output: OutputGradient


class EntrySums(NamedTuple):
    """The sums of a lazy matrix: by_query (B, H, Lq) of each row, by_key (B, H, Lk) of each column."""

    by_query: Tensor
    by_key: Tensor


class Derivative(LazyMatrix):
    """A lazy matrix of derivatives, (B, Hq, Lq, Lk), 0 where a pair may not attend."""

    def __init__(self, source: AttentionMap, call: Call) -> None:
        """source: the map. call: its mask and bias, with the output's gradient for queries and the values for keys."""
        self._source, self._call = source, call
        self._versions = [(t, t._version) for t in (call.q, call.k)]

    @property
    def shape(self) -> torch.Size:
        return self._source.shape

    @property
    def dtype(self) -> torch.dtype:
        return self._source.dtype

    @property
    def device(self) -> torch.device:
        return self._source.device

    def sums(self) -> EntrySums:
        """The sums of its rows and columns, in O(L) memory; those of a head add up to the head's own."""
        self._ready()
        B, H, Lq, Lk = self.shape
        with exact(self._call):
            rows, columns = (torch.zeros(B, H, n, dtype=self.dtype, device=self.device) for n in (Lq, Lk))
            for strip, entries in self.strips():
                strip.of_rows(rows).copy_(entries.sum(-1))
                strip.of_columns(columns).add_(entries.sum(-2))
        return EntrySums(rows, columns)

    def strips(self) -> Iterator[tuple[MapStrip, Tensor]]:
        """All of it in strips of whole rows, each with its entries (b, h, rows, columns)."""
        for strip in strips(self._call):
            yield strip, self._block((strip.samples, strip.heads, strip.rows, strip.columns))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({tuple(self.shape)}, of={self._source!r})"

    def _ready(self) -> None:
        self._source._ready()
        if any(t._version != version for t, version in self._versions):
            raise StaleMapError(STALE)


class WeightGradient(Derivative):
    """The derivative of a scalar by each weight after the softmax, dO·vᵀ; made by `AttentionMap.gradient`."""

    def _block(self, taken: tuple[Taken, ...]) -> Tensor:
        with torch.no_grad():
            return _products(self._call, taken)

    def _points(self, at: tuple[Tensor, ...]) -> Tensor:
        with torch.no_grad():
            return _pair_products(self._call, at)


class Attribution(Derivative):
    """Each weight times the derivative by it; made by `AttentionMap.attribution`."""

    def _block(self, taken: tuple[Taken, ...]) -> Tensor:
        with torch.no_grad():
            return self._source._block(taken) * _products(self._call, taken)

    def _points(self, at: tuple[Tensor, ...]) -> Tensor:
        with torch.no_grad():
            return self._source._points(at) * _pair_products(self._call, at)


def gradient_call(source: Call, backward: Backward) -> Call:
    """The call whose scores are dO·vᵀ, with the mask and the bias of a call; ArgumentError where there is no dO."""
    gradient = backward.output.gradient()
    v = backward.values()
    wide = torch.promote_types(source.q.dtype, torch.float32)
    gradient, v = gradient.to(source.q.device, wide), v.detach().to(source.k.device, wide)
    return Call(gradient, v, v, mask=source.mask, attn_bias=source.attn_bias, scale=1.0)


def _products(call: Call, taken: tuple[Taken, ...]) -> Tensor:
    """dO·vᵀ at what is taken from each axis, 0 where a pair may not attend."""
    part = blocks.block(call, taken)
    return _zero_where_masked(blocks.scores(replace(part, attn_bias=None, prepared={})), reference.open_pairs(part))


def _pair_products(call: Call, at: tuple[Tensor, ...]) -> Tensor:
    """The same at single places."""
    products, _ = blocks.pair_scores(replace(call, attn_bias=None, prepared={}), at)
    return _zero_where_masked(products, blocks.pair_scores(call, at)[1])


def _zero_where_masked(values: Tensor, allowed: Tensor | None) -> Tensor:
    """0 where a pair may not attend, whatever its value is."""
    return values if allowed is None else torch.where(allowed, values, 0.0)
