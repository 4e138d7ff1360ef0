"""Token positions: places queries and keys at their positions, for rotation, biases, masks and the cache."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from headwise.errors import ArgumentError, ShapeError
from headwise.layer.cache import KVCache
from headwise.layer.local_heads import Share
from headwise.layer.sizes import Widths
from headwise.masks import Mask
from headwise.positions import Alibi, RelativeBias, Rotary, RotaryEmbedding

Positions = Tensor | tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Placement:
    """The positions of one call: the layer's own module, `positions=`, the cache, and the heads computed here."""

    module: nn.Module | None
    given: Positions | None
    cache: KVCache | None
    is_self: bool
    share: Share

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Mask | None, attn_bias: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, Mask | None, Tensor | None]:
        """Rotate q and k, append to the cache, move the mask to its positions, add the bias of positions."""
        i, at = self.positions((q.shape[0], q.shape[2], k.shape[2]), q.device)
        j: Tensor | None = at
        if isinstance(self.module, RotaryEmbedding):
            cos, sin = self.module.tables(i, q.dtype)
            q = self.module.rotate(q, cos, sin)
            k = self.module.rotate(k, *((cos, sin) if at is i else self.module.tables(at, k.dtype)))
        if self.cache is not None:
            stretch = self.cache.extend(k, v, mask, attn_bias, i, placed=self.given is not None, heads=q.shape[1])
            k, v, mask, tokens = stretch.k, stretch.v, stretch.mask, stretch.tokens
            j = stretch.key_positions
            if attn_bias is not None and tokens is not None and attn_bias.shape[-1] > 1:
                attn_bias = attn_bias[..., tokens]
        elif self.given is not None and mask is not None:
            mask = mask.at(i, at)
        if self.module is None or isinstance(self.module, RotaryEmbedding):
            return q, k, v, mask, attn_bias
        at = torch.arange(k.shape[2], device=k.device) if j is None else j
        bias = self.share.call("position", self.module, i, at)
        return q, k, v, mask, bias if attn_bias is None else bias + attn_bias

    def positions(self, sizes: tuple[int, int, int], device: torch.device) -> tuple[Tensor, Tensor]:
        """Those of queries, (Lq,) or (B, Lq), and of keys, one object where they are the same. sizes: B, Lq and Lk."""
        B, Lq, Lk = sizes
        if isinstance(self.given, tuple):
            if len(self.given) != 2:
                raise ArgumentError(
                    f"positions must be a tensor, or a pair (of queries, of keys), but {len(self.given)} came in a "
                    "tuple: give one tensor or two"
                )
            if self.is_self:
                raise ArgumentError("positions=(queries, keys) is for cross-attention: self-attention has one of them")
            return self._checked(self.given[0], B, Lq, "queries"), self._checked(self.given[1], B, Lk, "keys")
        if self.is_self:
            if self.given is not None:
                i = self._checked(self.given, B, Lq, "tokens")
            elif self.cache is not None:
                i = self.cache.next_positions(Lq, device)
            else:
                i = torch.arange(Lq, device=device)
            return i, i
        if isinstance(self.module, RotaryEmbedding):
            raise ArgumentError(
                "rotary positions in cross-attention need those of the keys too: give positions=(queries, keys)"
            )
        last = torch.arange(Lk - Lq, Lk, device=device)
        i = last if self.given is None else self._checked(self.given, B, Lq, "queries")
        return i, torch.arange(Lk, device=device)

    @staticmethod
    def _checked(positions: Tensor, B: int, L: int, whose: str) -> Tensor:
        if not isinstance(positions, Tensor):
            raise ArgumentError(
                f"positions of {whose} must be a tensor of integers, ({L},) or (B={B}, {L}), but "
                f"{type(positions).__name__} came: make it with torch.tensor()"
            )
        if positions.is_floating_point() or positions.dtype is torch.bool:
            raise ArgumentError(f"positions of {whose} must be integers, but {positions.dtype} came: cast with .long()")
        fits = positions.ndim in (1, 2) and positions.shape[-1] == L
        if not fits or (positions.ndim == 2 and positions.shape[0] not in (1, B)):
            raise ShapeError(
                f"positions of {whose} must be ({L},) or (B={B}, {L}), but came as {tuple(positions.shape)}: "
                "give one position to each token"
            )
        # uint8 would wrap at the first difference
        return positions.long()


def built(
    position: Rotary | Alibi | RelativeBias | None, w: Widths, device: torch.device | str | None,
    dtype: torch.dtype | None,
) -> nn.Module | None:  # fmt: skip
    """The module of a layer's position=, None: none; ArgumentError where it is no spec of positions."""
    if position is None:
        return None
    if isinstance(position, Rotary):
        return position.build(w.D, device=device)
    if isinstance(position, Alibi):
        return position.build(w.Hq, device=device)
    if isinstance(position, RelativeBias):
        return position.build(w.Hq, device=device, dtype=dtype)
    raise ArgumentError(f"position must be None, Rotary(...), Alibi() or RelativeBias(...); got {position!r}")
