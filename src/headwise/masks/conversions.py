"""Conversions: masks to and from the tensors other libraries use, by functions whose names say both ends.

Most read the values they are given, so they belong outside `torch.compile`; the masks they give may go into it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from headwise.errors import MaskError
from headwise.masks.leaves import Documents
from headwise.masks.mask import Mask
from headwise.masks.patterns import allowed, documents, keys, lengths

# constants in use are -1e4, -1e6, -1e9, a dtype's lowest and -inf; bfloat16 rounds -1e4 to -9984
BLOCKED = -9984.0


def from_additive(scores: Tensor) -> Mask:
    """Scores that only block, such as 0 and -inf, as a mask.

    scores: floating, (Lq, Lk) or 4-D and broadcastable to (B, H, Lq, Lk). 0 may attend; -9984 (what bfloat16 makes of
    -1e4) and less is blocked, -inf too. Any other value may be a bias, and is refused.

    >>> from_additive(torch.tensor([[0.0, float("-inf")], [0.0, -1e9]]))
    allowed(t=torch.tensor([[True, False], [True, False]]))
    """
    if not scores.is_floating_point():
        raise MaskError(f"from_additive takes floating scores, but {scores.dtype} came: bool goes into allowed()")
    free = scores == 0
    _check_values(
        "from_additive takes 0 (may attend) and -9984 or less (blocked)",
        scores,
        free | (scores <= BLOCKED),
        "pass a real bias as attn_bias=",
    )
    return allowed(free)


def to_additive(
    mask: Mask,
    Lq: int,
    Lk: int,
    *,
    dtype: torch.dtype,
    blocked: float = float("-inf"),
    batch: int | None = None,
    heads: int | None = None,
) -> Tensor:
    """A mask as scores to add: 0 may attend, `blocked` may not; (Lq, Lk), or (B, H, Lq, Lk) with B or H 1 if shared.

    blocked: -inf, or a constant of -9984 or less that the dtype holds, as for libraries that add its lowest number.
    batch, heads: None: as many as the mask's tensors speak of.

    >>> from headwise import causal
    >>> to_additive(causal(), 2, 2, dtype=torch.float32)
    tensor([[0., -inf],
            [0., 0.]])
    """
    if not dtype.is_floating_point:
        raise MaskError(f"scores to add must be floating, but dtype={dtype} came: give the dtype of the queries")
    lowest = torch.finfo(dtype).min
    if not blocked <= BLOCKED or lowest > blocked > float("-inf"):
        raise MaskError(f"blocked must be -inf or lie in {lowest}..{BLOCKED} for {dtype}; got {blocked}")
    free = mask.allowed(Lq, Lk, batch=batch, heads=heads)
    return torch.zeros_like(free, dtype=dtype).masked_fill(~free, blocked)


def from_valid_lens(valid_lens: Tensor) -> Mask:
    """The valid_lens of d2l, (B,) or (B, Lq) integers, as a mask: `lengths` by the name it bears there.

    A query of length 0 gets zeros here, and the mean of all values in d2l.

    >>> from_valid_lens(torch.tensor([3, 1]))
    lengths(n=torch.tensor([3, 1]))
    """
    return lengths(valid_lens)


def to_valid_lens(mask: Mask, Lq: int, Lk: int, *, batch: int | None = None) -> Tensor:
    """How many keys come first and may be seen: (B,), or (B, Lq) where the queries of a sample differ.

    batch: None: as many samples as the mask's tensors speak of. Refused: keys that are not the first ones, and heads
    that differ.

    >>> from headwise import causal, lengths
    >>> to_valid_lens(lengths([2, 3]), 3, 3)
    tensor([2, 3])
    >>> to_valid_lens(causal(), 3, 3)
    tensor([[1, 2, 3]])
    """
    free = _shared(_four(mask, Lq, Lk, batch), 1, "valid_lens know no heads")[:, 0]
    counts = free.sum(-1)
    wrong = free & (torch.arange(Lk, device=free.device) >= counts[..., None])
    if wrong.any():
        b, i, j = wrong.nonzero()[0].tolist()
        n = int(counts[b, i])
        raise MaskError(
            f"valid_lens are the first n keys, but query {i} of sample {b} may attend to n={n} keys and key {j} is "
            "among them: use to_additive or to_blocked"
        )
    return counts[:, 0] if Lq and bool((counts == counts[:, :1]).all()) else counts


def from_attention_mask(attention_mask: Tensor) -> Mask:
    """The attention_mask (B, Lk) of Hugging Face tokenizers, 1 = a real token, as a mask.

    Integers, bool or floating, of 0 and 1 only.

    >>> from_attention_mask(torch.tensor([[1, 1, 0]]))
    keys(keep=torch.tensor([[True, True, False]]))
    """
    if attention_mask.ndim != 2:
        raise MaskError(
            f"from_attention_mask takes (B, Lk), but {tuple(attention_mask.shape)} came: a mask with queries goes "
            "through allowed() if it is bool, from_additive() if it is floating"
        )
    is_real = attention_mask == 1
    _check_values(
        "from_attention_mask takes 1 (a real token) and 0 (padding)",
        attention_mask,
        is_real | (attention_mask == 0),
        "numbered sequences go into documents(), scores through from_additive()",
    )
    return keys(is_real)


def to_attention_mask(
    mask: Mask, Lq: int, Lk: int, *, batch: int | None = None, dtype: torch.dtype = torch.int64
) -> Tensor:
    """The attention_mask (B, Lk) of Hugging Face models, 1 = a real token, of a mask that only hides padding.

    batch: None: as many samples as the mask's tensors speak of. A mask whose queries or heads differ is refused.

    >>> from headwise import lengths
    >>> to_attention_mask(lengths([3, 1]), 2, 3)
    tensor([[1, 1, 1],
            [1, 0, 0]])
    """
    free = _shared(_four(mask, Lq, Lk, batch), 1, "attention_mask (B, Lk) knows no heads")
    return _shared(free, 2, "attention_mask (B, Lk) knows no queries")[:, 0, 0].to(dtype)


def from_cu_seqlens(cu_seqlens: Tensor, *, length: int | None = None) -> Mask:
    """The cu_seqlens (N+1,) of sequences packed one after the other into one row, as a mask: `documents`.

    cu_seqlens: integers, where each sequence begins, and where the last one ends. length: how many tokens the row has,
    None: up to that end; more tokens are one more document. A sequence without tokens leaves no trace.

    >>> from_cu_seqlens(torch.tensor([0, 2, 5], dtype=torch.int32))
    documents(ids=torch.tensor([[0, 0, 1, 1, 1]]), key_ids=None)
    """
    if cu_seqlens.ndim != 1 or not len(cu_seqlens) or cu_seqlens.is_floating_point():
        raise MaskError(
            f"cu_seqlens must be (N+1,) integers for N sequences, but {tuple(cu_seqlens.shape)} {cu_seqlens.dtype} "
            "came: give where each begins, and the end"
        )
    ends = cu_seqlens.long()
    if ends[0] != 0 or bool((ends.diff() < 0).any()):
        raise MaskError(
            f"cu_seqlens must begin at 0 and never fall, but came as {cu_seqlens.tolist()}: sum the lengths"
        )
    if length is None:
        length = int(ends[-1])
    if length < ends[-1]:
        raise MaskError(
            f"length={length} must hold the {int(ends[-1])} tokens of cu_seqlens: give the length of the row"
        )
    tokens = torch.arange(length, device=ends.device)
    return documents(torch.searchsorted(ends, tokens, right=True) - 1)


def to_cu_seqlens(mask: Mask) -> Tensor:
    """Where each document begins, and the end: (N+1,) int32, from `documents` packed one after the other into one row.

    Only `documents` itself: causal and window are arguments of their own where cu_seqlens are taken.

    >>> from headwise import documents
    >>> to_cu_seqlens(documents(torch.tensor([7, 7, 4])))
    tensor([0, 2, 3], dtype=torch.int32)
    """
    if not isinstance(mask, Documents):
        raise MaskError(
            f"to_cu_seqlens takes documents(ids), but {mask!r} came: give its documents apart from the rest"
        )
    (rows, L), ids = mask.ids.shape, mask.ids[0]
    if rows != 1 or not (mask.key_ids is None or torch.equal(mask.key_ids, mask.ids)):
        raise MaskError(
            f"cu_seqlens are of one row of tokens that see each other, but {mask!r} has B={rows} rows or key_ids of "
            "its own: convert each row alone"
        )
    begins = torch.ones(L, dtype=torch.bool, device=ids.device)
    begins[1:] = ids[1:] != ids[:-1]
    starts = begins.nonzero()[:, 0]
    found = len(ids.unique())
    if len(starts) != found:
        raise MaskError(
            f"the tokens of a document must be side by side, but {found} ids make {len(starts)} stretches: sort the "
            "tokens by document"
        )
    return torch.cat([starts, starts.new_tensor([L])]).to(torch.int32)


def _four(mask: Mask, Lq: int, Lk: int, batch: int | None) -> Tensor:
    """The dense mask as (B, 1 or H, Lq, Lk)."""
    samples = mask.batch if batch is None else batch
    dense = mask.allowed(Lq, Lk, batch=samples)
    return dense.expand(samples, -1 if dense.ndim == 4 else 1, Lq, Lk)


def _shared(free: Tensor, axis: int, sentence: str) -> Tensor:
    """free (B, H, Lq, Lk) with size 1 along an axis on which all must agree."""
    common = free.all(axis, keepdim=True)
    differs = free != common
    if differs.any():
        b, h, i, j = differs.nonzero()[0].tolist()
        raise MaskError(
            f"{sentence}, but in sample {b} head {h}, query {i} may attend to key {j} and another may not: use "
            "to_additive or to_blocked"
        )
    return common


def _check_values(rule: str, values: Tensor, is_fine: Tensor, remedy: str) -> None:
    """Refuse values that are not fine, showing how many and up to three of them."""
    if not is_fine.all():
        others = values[~is_fine]
        shown = ", ".join(f"{value:g}" for value in others.unique()[:3].tolist())
        raise MaskError(
            f"{rule}, but {others.numel()} of {values.numel()} values are others, such as {shown}: {remedy}"
        )
