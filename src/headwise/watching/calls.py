"""The calls of hw.attention while a block runs, from which exact weights can be computed afterwards."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode

from headwise.masks import Mask
from headwise.ops.attention import attention
from headwise.ops.reference import attention_weights

__all__ = ["AttentionCall", "RecordedCalls"]


@dataclass(frozen=True, eq=False)
class AttentionCall:
    """What one call of hw.attention was given, but for its values.

    q (B, Hq, Lq, D), k (B, Hk, Lk, D), without their gradients; the rest as it was passed.
    """

    q: Tensor
    k: Tensor
    mask: Mask | Tensor | None
    attn_bias: Tensor | None
    scale: float | None
    softcap: float | None
    sink: Tensor | None

    def weights(self) -> Tensor:
        """(B, Hq, Lq, Lk): the attention weights of this call, before dropout, computed anew by the definition."""
        return attention_weights(
            self.q,
            self.k,
            mask=self.mask,
            attn_bias=self.attn_bias,
            scale=self.scale,
            softcap=self.softcap,
            sink=self.sink,
        )


class RecordedCalls(TorchFunctionMode):
    """A block in which every call of hw.attention is recorded, in order; its outputs stay bit-equal.

    q and k are held, not copied: one that is changed in place before `weights()` is asked for gives other weights.

    >>> import torch
    >>> q, k, v = torch.zeros(1, 2, 3, 5), torch.zeros(1, 2, 4, 5), torch.zeros(1, 2, 4, 6)
    >>> with RecordedCalls() as seen:
    ...     out = attention(q, k, v)
    >>> [call.weights().shape for call in seen.calls]
    [torch.Size([1, 2, 3, 4])]
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[AttentionCall] = []

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        options = dict(kwargs or {})
        if func is attention:
            named = dict(zip(("q", "k", "v"), args, strict=False)) | options
            self.calls.append(
                AttentionCall(
                    q=named["q"].detach(),
                    k=named["k"].detach(),
                    **{name: named.get(name) for name in ("mask", "attn_bias", "scale", "softcap", "sink")},
                )
            )
        return func(*args, **options)
