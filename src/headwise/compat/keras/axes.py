"""attention_axes: which axes of Keras' inputs attend to each other, while the others count as samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from headwise.errors import ArgumentError, MaskError, ShapeError

__all__ = ["AttentionAxes"]


@dataclass(frozen=True)
class AttentionAxes:
    """The axes of (B, ..., features) that attend, and the ones between B and features that do not.

    >>> axes = AttentionAxes.of(2, torch.zeros(2, 3, 4, 5))
    >>> axes
    AttentionAxes(attending=(2,), beside=(1,))
    >>> axes.flat(torch.zeros(2, 3, 4, 5)).shape
    torch.Size([6, 4, 5])
    """

    attending: tuple[int, ...]
    beside: tuple[int, ...]

    @staticmethod
    def of(axes: int | Sequence[int] | None, query: Tensor) -> AttentionAxes:
        """The axes that attend in `query`; None: all but the first and the last."""
        if query.ndim < 3:
            raise ShapeError(f"query must be (B, T, features) or have more axes, but came as {tuple(query.shape)}")
        inner = tuple(range(1, query.ndim - 1))
        listed = inner if axes is None else (axes,) if isinstance(axes, int) else tuple(axes)
        attending = tuple(axis + query.ndim if isinstance(axis, int) and axis < 0 else axis for axis in listed)
        if not attending or not set(attending) <= set(inner) or list(attending) != sorted(set(attending)):
            raise ArgumentError(
                f"attention_axes must name axes of 1..{query.ndim - 2} in rising order, those between samples and "
                f"features of the query {tuple(query.shape)}, but came as {axes}"
            )
        return AttentionAxes(attending, tuple(axis for axis in inner if axis not in attending))

    @property
    def is_plain(self) -> bool:
        """Whether inputs are (B, T, features)."""
        return self.attending == (1,) and not self.beside

    def flat(self, x: Tensor) -> Tensor:
        """x as (samples, L, features)."""
        if self.is_plain:
            return x
        samples = math.prod(self.sizes(x, (0, *self.beside)))
        length = math.prod(self.sizes(x, self.attending))
        return x.permute(0, *self.beside, *self.attending, x.ndim - 1).reshape(samples, length, x.shape[-1])

    def check(self, query: Tensor, name: str, x: Tensor) -> None:
        """Raise ShapeError unless x goes with the query."""
        if x.ndim != query.ndim or self.sizes(x, (0, *self.beside)) != self.sizes(query, (0, *self.beside)):
            raise ShapeError(
                f"{name} must have the samples of the query {tuple(query.shape)}, along the axes "
                f"{(0, *self.beside)}, but came as {tuple(x.shape)}"
            )

    def output(self, out: Tensor, query: Tensor, features: tuple[int, ...]) -> Tensor:
        """(samples, Lq, ·) with the axes of the query again, and `features` after them."""
        if self.is_plain:
            return out if len(features) == 1 else out.unflatten(-1, features)
        order = (0, *self.beside, *self.attending)
        apart = out.reshape(*self.sizes(query, order), *features)
        back = [order.index(axis) for axis in range(query.ndim - 1)]
        return apart.permute(*back, *range(query.ndim - 1, apart.ndim))

    def scores(self, scores: Tensor, query: Tensor, key: Tensor) -> Tensor:
        """(samples, H, Lq, Lk) as (B, beside ..., H, query's attending ..., key's attending ...)."""
        if self.is_plain:
            return scores
        sizes = (
            self.sizes(query, (0, *self.beside)),
            self.sizes(query, self.attending),
            self.sizes(key, self.attending),
        )
        return scores.reshape(*sizes[0], scores.shape[1], *sizes[1], *sizes[2])

    def mask(self, flags: Tensor, query: Tensor, key: Tensor) -> Tensor:
        """Keras' attention_mask as one that broadcasts to (samples, H, Lq, Lk).

        Its last axes are those of the query and of the key that attend; what stands in front are samples, then the
        axes beside, then heads, as many as are given.
        """
        count = len(self.attending)
        most = 2 * count + 2 + len(self.beside)
        if not 2 * count <= flags.ndim <= most:
            raise MaskError(
                f"attention_mask must have {2 * count} to {most} axes, the last {2 * count} being those of query and "
                f"key that attend, but came as {tuple(flags.shape)}"
            )
        front = flags.shape[: flags.ndim - 2 * count]
        four = flags.reshape(*front, *(1,) * (most - flags.ndim), *flags.shape[flags.ndim - 2 * count :])
        if self.is_plain:
            return four
        heads = four.shape[1 + len(self.beside)]
        inner, outer = self.sizes(query, self.attending), self.sizes(key, self.attending)
        samples = self.sizes(query, (0, *self.beside))
        wanted = (*samples, heads, *inner, *outer)
        if any(n not in (1, size) for n, size in zip(four.shape, wanted, strict=True)):
            raise MaskError(f"attention_mask must broadcast to {wanted}, but came as {tuple(flags.shape)}")
        return four.expand(wanted).reshape(math.prod(samples), heads, math.prod(inner), math.prod(outer))

    @staticmethod
    def sizes(x: Tensor, axes: tuple[int, ...]) -> tuple[int, ...]:
        """The sizes of x along axes."""
        return tuple(x.shape[axis] for axis in axes)
