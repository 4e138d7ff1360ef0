"""MultiheadAttention: nn.MultiheadAttention with its names and weights, and the same numbers on every path."""

from __future__ import annotations

from typing import Any, NoReturn

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.fx import Proxy

from headwise.compat.inputs import check_given, check_tensors
from headwise.compat.torch.masks import fits, rules_of, say_what_torch_says, weights_of, with_open_keys
from headwise.compat.torch.nested import Padded
from headwise.errors import ConversionError, ShapeError
from headwise.ops import attention

__all__ = ["MultiheadAttention"]


class MultiheadAttention(nn.MultiheadAttention):
    """nn.MultiheadAttention of torch 2.13: its constructor, forward and state_dict, its first weights under one seed.

    strict_torch: False computes by headwise's laws, through `hw.attention`, so that the output depends neither on
    need_weights nor on train or eval nor on gradients. Where torch is right the numbers are its own; else:

    * is_causal holds in every mode, by position and aligned at the last key. It needs no attn_mask, since it says all
      that one would, and a flag costs no (Lq, Lk) tensor; given both, both hold. torch takes it for a hint: alone, it
      refuses it, or in eval ignores it; beside attn_mask it ignores one of the two.
    * A query that may attend to nothing has weights 0 and mixes nothing: its output is the bias of out_proj, not NaN.
    * The weights returned are those before dropout, rows that sum to 1; torch's are those after it.
    * Masks may be of two dtypes: a bool one blocks, a floating one is added. torch warns, then does the same.
    * out_proj is called as a module, so that its hooks run and it may be replaced; torch only reads its weights.
    * Nested tensors of the strided layout are taken in every mode, for self-attention without masks.
    * Dropout draws its own numbers, not those that torch would draw under the same seed.

    True hands each call to nn.MultiheadAttention: torch's numbers, fast path, NaN and errors.
    Either way key_padding_mask and attn_mask mean what they do there: True = blocked, a floating mask is added.

    nn.TransformerEncoderLayer has a fast path that only reads the weights of its self_attn and would go round the laws
    (there, a mask of real numbers blocks wherever it is not 0). torch leaves that path where a module has a forward
    hook, so a forward pre-hook that does nothing is registered; all attributes stay as they are. A graph of torch.fx
    calls it whole, as it does torch's. torch.jit.script is refused, and torch.jit.trace too unless strict_torch.

    >>> import torch, headwise as hw
    >>> from headwise.compat.torch import MultiheadAttention
    >>> attn, x = MultiheadAttention(8, 2, batch_first=True), torch.randn(3, 5, 8)
    >>> output, weights = attn(x, x, x, is_causal=True)
    >>> output.shape, weights.shape
    (torch.Size([3, 5, 8]), torch.Size([3, 5, 5]))
    >>> weights[0, 0]
    tensor([1., 0., 0., 0., 0.], grad_fn=<SelectBackward0>)
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        strict_torch: bool = False,
    ) -> None:
        super().__init__(
            embed_dim, num_heads, dropout, bias, add_bias_kv, add_zero_attn, kdim, vdim, batch_first, device, dtype
        )
        self._become(strict_torch)

    @property
    def strict_torch(self) -> bool:
        """Whether every call is torch's own."""
        return self._strict_torch

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Each query's mixture of the values it may see, and the weights, or None where they are not needed.

        query (Lq, B, E), key (Lk, B, kdim) and value (Lk, B, vdim), or with B first under batch_first, or all without
        B; the output is shaped as the query. key_padding_mask: (B, Lk), or (Lk,) without B. attn_mask: (Lq, Lk), or
        (B*H, Lq, Lk) with the heads of a sample side by side. Both: bool, True = blocked, or floating, added to the
        scores; None: nothing. Weights: (B, Lq, Lk) averaged over heads, else (B, H, Lq, Lk), and without B where the
        query has none; the keys of add_bias_kv and add_zero_attn come last. is_causal: see the class.
        """
        if isinstance(query, Proxy):
            rest = (key_padding_mask, need_weights, attn_mask, average_attn_weights, is_causal)
            return self._one_call_of_fx(query.tracer, query, key, value, *rest)
        if self._strict_torch:
            return super().forward(
                query, key, value, key_padding_mask, need_weights, attn_mask, average_attn_weights, is_causal
            )
        if torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]  # torch leaves it untyped
            _refuse_script("torch.jit.trace")
        check_tensors(query=query, key=key, value=value)
        check_given(key_padding_mask=key_padding_mask, attn_mask=attn_mask)
        if query.is_nested or key.is_nested or value.is_nested:
            self._check_nested(query, key, value, key_padding_mask, attn_mask)
            padded = Padded.of(query)
            rows = padded.rows
            out, weights = self._batched(
                rows, rows, rows, padded.padding, need_weights, None, average_attn_weights, is_causal
            )
            return padded.unpadded(out), None if weights is None else padded.of_queries(weights)
        if not fits(self, query, key, value, key_padding_mask, attn_mask):
            say_what_torch_says(self, query, key, value, key_padding_mask, attn_mask)
        if query.ndim == 3:
            return self._batched(
                query, key, value, key_padding_mask, need_weights, attn_mask, average_attn_weights, is_causal
            )
        axis = 0 if self.batch_first else 1
        query, key, value = (t.unsqueeze(axis) for t in (query, key, value))
        padding = None if key_padding_mask is None else key_padding_mask[None]
        out, weights = self._batched(
            query, key, value, padding, need_weights, attn_mask, average_attn_weights, is_causal
        )
        return out.squeeze(axis), None if weights is None else weights[0]

    def _batched(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None,
        need_weights: bool,
        attn_mask: Tensor | None,
        average_attn_weights: bool,
        is_causal: bool,
    ) -> tuple[Tensor, Tensor | None]:
        """What forward gives, of tensors that fit and have a batch."""
        q, k, v = self._projected(query, key, value)
        mask, bias = rules_of(attn_mask, key_padding_mask, is_causal=is_causal, batch=q.shape[0], heads=self.num_heads)
        added = (self.bias_k is not None) + self.add_zero_attn
        if added:
            mask, bias = with_open_keys(mask, bias, q, k, added)
        mixed = attention(q, k, v, mask=mask, attn_bias=bias, dropout=self.dropout if self.training else 0.0)
        rows = mixed.transpose(1, 2) if self.batch_first else mixed.permute(2, 0, 1, 3)
        out: Tensor = self.out_proj(rows.flatten(2))
        if not need_weights:
            return out, None
        weights = weights_of(q, k, mask, bias)
        # averaged before it is rounded to a half
        return out, (weights.mean(dim=1) if average_attn_weights else weights).to(mixed.dtype)

    def _projected(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries (B, H, Lq, D), and keys and values (B, H, Lk, D) with those that the options add at the end."""
        H, order = self.num_heads, (0, 2, 1, 3) if self.batch_first else (1, 2, 0, 3)
        packed, bias = self.in_proj_weight, self.in_proj_bias
        w_q, w_k, w_v = (
            packed.chunk(3) if packed is not None else (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        )
        b_q, b_k, b_v = (None, None, None) if bias is None else bias.to(w_q.dtype).chunk(3)
        q = F.linear(query, w_q, b_q).unflatten(-1, (H, -1)).permute(order)
        k = F.linear(key, w_k, b_k).unflatten(-1, (H, -1)).permute(order)
        v = F.linear(value, w_v, b_v).unflatten(-1, (H, -1)).permute(order)
        if self.bias_k is not None and self.bias_v is not None:
            k, v = _longer(k, self.bias_k), _longer(v, self.bias_v)
        if self.add_zero_attn:
            k, v = (torch.cat([t, t.new_zeros(*t.shape[:2], 1, t.shape[3])], dim=2) for t in (k, v))
        return q, k, v

    def _check_nested(
        self, query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Tensor | None, attn_mask: Tensor | None
    ) -> None:
        is_self = query is key and key is value
        is_plain = query.layout is torch.strided and query.dim() == 3 and self.batch_first
        if not (is_self and is_plain and key_padding_mask is None and attn_mask is None):
            raise ShapeError(
                "nested tensors must be one (B, *, E) of the strided layout, given as query, key and value alike, with "
                f"batch_first=True and no masks, but {query.dim()}-D {query.layout} came with "
                f"batch_first={self.batch_first}: pad them, and say which keys are padding by key_padding_mask"
            )

    def _one_call_of_fx(self, tracer: Any, *args: Any) -> Any:
        """This module as one call in a graph of torch.fx, which so leaves whole what is of torch.nn."""
        if tracer.root is self:
            raise ConversionError(
                "torch.fx does not look inside of headwise.compat.torch.MultiheadAttention, as it does not inside of "
                "torch's: trace a module that holds it, or use torch.export"
            )
        return tracer.create_proxy("call_module", tracer.path_of_module(self), args, {})

    def _become(self, strict_torch: bool) -> None:
        """What makes a plain nn.MultiheadAttention this class, its tensors apart."""
        self._strict_torch = strict_torch
        if not strict_torch:
            self.register_forward_pre_hook(no_fast_path)

    def __setstate__(self, state: dict[str, Any]) -> None:
        state.setdefault("_strict_torch", False)
        super().__setstate__(state)  # type: ignore[no-untyped-call]  # torch leaves it untyped

    def __prepare_scriptable__(self) -> NoReturn:
        """Called by torch.jit.script."""
        _refuse_script("torch.jit.script")


def no_fast_path(_: nn.Module, __: Any) -> None:
    """A forward pre-hook that does nothing: where one is, nn.TransformerEncoderLayer calls its attention."""


def _longer(heads: Tensor, learned: Tensor) -> Tensor:
    """Heads (B, H, Lk, D) with one more key, learned (1, 1, E), at the end."""
    B, H, _, D = heads.shape
    return torch.cat([heads, learned.to(heads.dtype).view(1, H, 1, D).expand(B, H, 1, D)], dim=2)


def _refuse_script(function: str) -> NoReturn:
    raise ConversionError(
        f"{function} cannot hold headwise.compat.torch.MultiheadAttention, since TorchScript knows neither its masks "
        "nor its backends: use torch.compile or torch.export, or load its state_dict into nn.MultiheadAttention"
    )
