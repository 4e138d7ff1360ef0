"""valid_lens, how many of the first keys count, as d2l and the notes after it take them."""

from __future__ import annotations

import torch
from torch import Tensor

from headwise.compat.uniform_rows import with_even_rows
from headwise.errors import MaskError, ShapeError
from headwise.masks import Mask, lengths

__all__ = ["counts", "rows"]


def rows(
    q: Tensor, k: Tensor, valid_lens: Tensor | None, *, is_additive: bool = False
) -> tuple[Tensor, Tensor, Mask | None]:
    """q and k (B, 1, L, D) and their mask, such that a query of length 0 sees all keys alike."""
    if valid_lens is None:
        return q, k, None
    Lk = k.shape[2]
    n = counts(valid_lens, q.shape[0], q.shape[2], Lk)
    empty = n == 0
    most = n if n.ndim == 1 else n.amax(-1) if q.shape[2] else n.new_zeros(n.shape[0])
    unseen = torch.arange(Lk, device=k.device) >= most[:, None]
    which = empty[:, None, :, None] if empty.ndim == 2 else empty[:, None, None, None]
    q, k = with_even_rows(q, k, empty=which, unseen=unseen[:, None, :, None], is_additive=is_additive)
    return q, k, lengths(n.masked_fill(empty, Lk))


def counts(valid_lens: Tensor, B: int, Lq: int, Lk: int) -> Tensor:
    """valid_lens as integers in 0..Lk, (B,) or (B, Lq); how many whole numbers lie below a broken one, as in d2l."""
    if not isinstance(valid_lens, Tensor) or valid_lens.dtype is torch.bool or valid_lens.is_complex():
        kind = valid_lens.dtype if isinstance(valid_lens, Tensor) else type(valid_lens).__name__
        raise MaskError(
            f"valid_lens must be numbers of keys, but {kind} came: count the keys that a mask shows with mask.sum(-1)"
        )
    if tuple(valid_lens.shape) not in ((B,), (B, Lq)):
        raise ShapeError(
            f"valid_lens must be (B={B},) or (B={B}, Lq={Lq}), but came as {tuple(valid_lens.shape)}: "
            "give one length to each sample, or to each query"
        )
    if valid_lens.is_floating_point():
        valid_lens = valid_lens.nan_to_num(nan=0.0).ceil()
    return valid_lens.clamp(0, Lk).long()
