"""MultiHeadAttention: the layer, every convention in one, with four plain Linears."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from headwise.errors import ArgumentError, CacheError
from headwise.layer.axis_order import check_axis_order
from headwise.layer.cache import KVCache, make_cache
from headwise.layer.foreign_arguments import BUILDING, BUILT_BY_NAME, BY_NAME, CALLING
from headwise.layer.local_heads import Share
from headwise.layer.memory import Memory
from headwise.layer.norms import head_norm
from headwise.layer.owner import LayerOwner
from headwise.layer.scores import Additive, DotProduct, additive_width
from headwise.layer.sizes import Widths, check_options, check_width, make_widths, projected, refuse_packed
from headwise.layer.spread_call import SpreadPlacement, attention_over, check_spread, spread_of
from headwise.layer.token_positions import Placement, Positions, built
from headwise.masks import Mask, as_mask
from headwise.ops import additive_attention, attention
from headwise.ops.active_spread import SpreadSequence
from headwise.positions import Alibi, RelativeBias, Rotary
from headwise.wording.hints import hinted


class MultiHeadAttention(nn.Module):
    """Multi-head attention over batch-first sequences: self- and cross-attention, with the same numbers on every path.

    embed_dim: width E of queries and, unless told otherwise, of everything else. num_heads: Hq. num_kv_heads: Hk,
    which divides Hq (grouped heads; 1: multi-query), None: Hq. head_dim: D, None: E // Hq. v_head_dim: Dv, None: D.
    kdim: width of keys, None: E. vdim: width of values, None: kdim. out_dim: width of the output, None: E.
    bias: of all four projections. dropout: of the weights, in training. score: DotProduct(...) or Additive(...).
    position: Rotary(...), Alibi(), RelativeBias(...), None: none. qk_norm: "rms", "layer" or "l2" over each head of
    queries and keys, before rotation, None: none.

    The projections q_proj, k_proj, v_proj and out_proj are nn.Linear modules and are called as such: hooks, LoRA,
    quantisation and parametrisation work on them. Initialised as nn.MultiheadAttention is.
    The output is one tensor, not a pair: `out, weights = attn(x)` would split the batch; `hw.watch` gives the weights.
    Vaswani et al. 2017, arXiv:1706.03762, sec. 3.2.2; grouped heads: arXiv:2305.13245; qk_norm: arXiv:2302.05442.

    >>> import torch, headwise as hw
    >>> attn = hw.MultiHeadAttention(512, 8)
    >>> x = torch.randn(2, 7, 512)
    >>> attn(x, mask=hw.causal()).shape
    torch.Size([2, 7, 512])
    >>> attn(x, torch.randn(2, 9, 512)).shape
    torch.Size([2, 7, 512])
    """

    @hinted(BUILDING, by_name=BUILT_BY_NAME)
    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        num_kv_heads: int | None = None,
        head_dim: int | None = None,
        v_head_dim: int | None = None,
        kdim: int | None = None,
        vdim: int | None = None,
        out_dim: int | None = None,
        bias: bool = True,
        dropout: float = 0.0,
        score: DotProduct | Additive = DotProduct(),  # noqa: B008  frozen, so it is safe to share
        position: Rotary | Alibi | RelativeBias | None = None,
        qk_norm: Literal["rms", "layer", "l2"] | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(score, DotProduct | Additive):
            raise ArgumentError(f"score must be DotProduct(...) or Additive(...); got {score!r}")
        if isinstance(score, Additive):
            head_dim = additive_width(score, head_dim, position)
        check_options(bias, dropout, device, dtype)
        self.widths: Widths = make_widths(
            embed_dim, num_heads, num_kv_heads=num_kv_heads, head_dim=head_dim, v_head_dim=v_head_dim,
            kdim=kdim, vdim=vdim, out_dim=out_dim,
        )  # fmt: skip
        self.dropout, self.score = dropout, score
        self._owner = LayerOwner(self.widths)
        w = self.widths
        self._share = Share(w.Hq, w.Hk)
        self.q_proj = nn.Linear(w.E, w.Hq * w.D, bias=bias, device=device, dtype=dtype)
        self.k_proj = nn.Linear(w.key, w.Hk * w.D, bias=bias, device=device, dtype=dtype)
        self.v_proj = nn.Linear(w.value, w.Hk * w.Dv, bias=bias, device=device, dtype=dtype)
        self.out_proj = nn.Linear(w.Hq * w.Dv, w.out, bias=bias, device=device, dtype=dtype)
        self.q_norm = head_norm(qk_norm, w.D, device=device, dtype=dtype)
        self.k_norm = head_norm(qk_norm, w.D, device=device, dtype=dtype)
        self.position = built(position, w, device, dtype)
        self._shares_position = isinstance(position, RelativeBias) and position.shared is not None
        learned = isinstance(score, DotProduct) and score.sink == "learned"
        self.sink = nn.Parameter(torch.empty(w.Hq, device=device, dtype=dtype)) if learned else None
        shape = (w.Hq, w.D)
        additive = isinstance(score, Additive)
        self.score_weight = nn.Parameter(torch.empty(shape, device=device, dtype=dtype)) if additive else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialise as nn.MultiheadAttention is: Xavier-uniform queries, keys and values, biases of zero.

        Where the three read one width they share one bound, as if packed into one matrix. A learned sink starts at 0.
        """
        w = self.widths
        together = sum(p.out_features for p in (self.q_proj, self.k_proj, self.v_proj))
        for projection in (self.q_proj, self.k_proj, self.v_proj):
            fan_out = together if w.E == w.key == w.value else projection.out_features
            bound = math.sqrt(6.0 / (projection.in_features + fan_out))
            nn.init.uniform_(projection.weight, -bound, bound)
        self.out_proj.reset_parameters()
        for projection in (self.q_proj, self.k_proj, self.v_proj, self.out_proj):
            if projection.bias is not None:
                nn.init.zeros_(projection.bias)
        for module in (self.q_norm, self.k_norm, self.position):
            reset = getattr(module, "reset_parameters", None)
            # a table that layers share on purpose is not theirs to reset
            if reset is not None and not (module is self.position and self._shares_position):
                reset()
        if self.sink is not None:
            nn.init.zeros_(self.sink)
        if self.score_weight is not None:
            nn.init.xavier_uniform_(self.score_weight)

    @hinted(CALLING, by_name=BY_NAME)
    def forward(
        self,
        query: Tensor,
        key: Tensor | Memory | None = None,
        value: Tensor | None = None,
        *,
        mask: Mask | Tensor | None = None,
        attn_bias: Tensor | None = None,
        positions: Positions | None = None,
        cache: KVCache | None = None,
        spread: SpreadSequence | None = None,
    ) -> Tensor:
        """Each query's mixture of the values it may see: (B, Lq, out), or (Lq, out) of an unbatched query.

        query (B, Lq, E) or (Lq, E); key (B, Lk, kdim) or (Lk, kdim), None: the query; value as key, None: the key.
        key may be a Memory. mask and attn_bias as in `hw.attention`. positions: (Lq,) or (B, Lq), where the tokens
        sit, None: one after another, the last query at the last key; a pair (of queries, of keys) for
        cross-attention. cache: a KVCache to append to and attend to, self-attention only. spread: of a sequence whose
        tokens ranks share, made by `hw.distributed.spread`: query holds those of this rank, mask, attn_bias and
        positions are those of the whole map; `spread.with_keys(source)` takes key for the rank's tokens of source, or,
        where source is None, for all keys, whole on each rank; spread None: that of the `with spread:` around, if any.
        """
        if value is not None or cache is not None:
            _checked_together(key, value, cache)
        if attn_bias is not None and isinstance(self.score, Additive):
            raise ArgumentError("attn_bias adds to dot products, but this layer scores by Additive: leave it out")
        mask = None if mask is None else as_mask(mask)
        beside = (mask, attn_bias, positions, cache, spread_of(self, spread, query, key))
        if isinstance(query, Tensor) and query.ndim == 2 and query.is_floating_point():
            key = key[None] if isinstance(key, Tensor) and key.ndim == 2 else key
            value = value[None] if isinstance(value, Tensor) and value.ndim == 2 else value
            return self._batched(query[None], key, value, *beside)[0]
        return self._batched(query, key, value, *beside)

    def memory(self, key: Tensor, value: Tensor | None = None, *, mask: Mask | Tensor | None = None) -> Memory:
        """Keys and values of cross-attention, projected once: attn(query, memory) equals attn(query, key, value).

        key (B, Lk, kdim), value (B, Lk, vdim), None: the key; mask: who of them may be seen, used in every call.

        >>> import torch, headwise as hw
        >>> attn, source = hw.MultiHeadAttention(8, 2), torch.randn(2, 5, 8)
        >>> memory = attn.memory(source, mask=hw.lengths([5, 3]))
        >>> attn(torch.randn(2, 1, 8), memory).shape
        torch.Size([2, 1, 8])
        """
        if isinstance(key, Tensor) and key.ndim == 2 and key.is_floating_point():
            key, value = key[None], value[None] if isinstance(value, Tensor) else value
        k, v = self._keys_and_values(*self._entered(key, value))
        return Memory(k, v, as_mask(mask), (self._owner,))

    def cache(
        self, *, length: int | None = None, batch: int | None = None, window: int | None = None, sinks: int = 0
    ) -> KVCache:
        """An empty cache for this layer's self-attention: attn(x, mask=hw.causal(), cache=cache).

        All None: it grows. length and batch: static buffers for torch.compile. window: the last `window` keys are
        kept, and the first `sinks` ones (arXiv:2309.17453), with memory that does not grow.

        >>> import headwise as hw
        >>> hw.MultiHeadAttention(8, 2).cache(window=4, sinks=1)
        KVCache(window=4, sinks=1, seen=0)
        """
        # a projection may have been replaced by one without a plain weight, so any parameter says where
        device = next((p.device for p in self.parameters()), torch.device("cpu"))
        return make_cache(self._owner, device, length=length, batch=batch, window=window, sinks=sinks)

    def extra_repr(self) -> str:
        w = self.widths
        said = [f"embed_dim={w.E}", f"num_heads={w.Hq}"]
        said += [f"num_kv_heads={w.Hk}"] if w.Hk != w.Hq else []
        said += [f"head_dim={w.D}"] + ([f"v_head_dim={w.Dv}"] if w.Dv != w.D else [])
        said += [f"dropout={self.dropout}"] if self.dropout else []
        said += [f"score={self.score}"] if self.score != DotProduct() else []
        return ", ".join(said)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        refuse_packed(state_dict, prefix, self.widths)
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]  # torch leaves it untyped
        # the state of a copy, or of a pickle; one of before 0.5 has no owner
        self.__dict__.setdefault("_owner", LayerOwner(self.widths)).is_claimed = True
        self.__dict__.setdefault("_share", Share(self.widths.Hq, self.widths.Hk))

    def _batched(
        self,
        query: Tensor,
        key: Tensor | Memory | None,
        value: Tensor | None,
        mask: Mask | None,
        attn_bias: Tensor | None,
        positions: Positions | None,
        cache: KVCache | None,
        spread: SpreadSequence | None,
    ) -> Tensor:
        w, share = self.widths, self._share
        check_width("query", query, w.E, "embed_dim")
        if cache is not None:
            cache.check_layer(self._owner)
        B, Lq, _ = query.shape
        entered = share.enter(query, self)
        q = projected(share, "q_proj", self.q_proj, "query", entered, share.Hq, w.D)
        if self.q_norm is not None:
            q = share.call("q_norm", self.q_norm, q)
        if isinstance(key, Memory):
            key.check_layer(self._owner, share.Hk)
            k, v = key.k, key.v
            mask = key.mask if mask is None else mask if key.mask is None else key.mask & mask
        else:
            k, v = self._keys_and_values(*((entered, entered) if key is None else self._entered(key, value)))
            if key is not None:
                check_axis_order(query, key, value)
        mask = None if mask is None else share.mask(mask)
        attn_bias = None if attn_bias is None else share.bias(attn_bias)
        by_distance = None
        if spread is not None:
            check_spread(spread, query, cache)
            place_spread = SpreadPlacement(self.position, positions, spread, is_self=key is None, share=share)
            q, k, mask, by_distance = place_spread(q, k, mask)
        elif cache is not None or positions is not None or self.position is not None:
            place = Placement(self.position, positions, cache, is_self=key is None, share=share)
            q, k, v, mask, attn_bias = place(q, k, v, mask, attn_bias)
        run: Callable[..., Tensor] = attention if cache is None else cache.attention
        if spread is not None:
            run = partial(attention_over(spread, share), distance_bias=by_distance)
        elif isinstance(self.score, Additive) and cache is None:
            run = additive_attention
        rules = self._rules(q, mask, attn_bias, is_seeded=spread is None)
        mixed = share.attend(run, q, k, v, **rules).transpose(1, 2).reshape(B, Lq, share.Hq * w.Dv)
        return share.leave(share.call("out_proj", self.out_proj, mixed), self)

    def _entered(self, key: Tensor, value: Tensor | None) -> tuple[Tensor, Tensor]:
        source = self._share.enter(key, self)
        return source, source if value is None or value is key else self._share.enter(value, self)

    def _keys_and_values(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        w, share = self.widths, self._share
        check_width("key", key, w.key, "kdim")
        if value is not key or w.value != w.key:
            check_width("value", value, w.value, "vdim")
        k = projected(share, "k_proj", self.k_proj, "key", key, share.Hk, w.D)
        v = projected(share, "v_proj", self.v_proj, "value", value, share.Hk, w.Dv)
        return (k if self.k_norm is None else share.call("k_norm", self.k_norm, k)), v

    def _rules(self, q: Tensor, mask: Mask | None, attn_bias: Tensor | None, *, is_seeded: bool) -> dict[str, Any]:
        """The rules of a call: those of the layer, mask and bias. is_seeded: dropout draws from a stream."""
        share, score, dropout = self._share, self.score, self.dropout if self.training else 0.0
        rules: dict[str, Any] = {"mask": mask, "dropout": dropout}
        rules["generator"] = share.generator(q.device) if dropout and is_seeded else None
        if isinstance(score, Additive):
            return {"weight": share.parameter("score_weight", self.score_weight), **rules}  # type: ignore[arg-type]  # an additive one's
        sink = q.new_zeros(q.shape[1]) if score.sink == "zero" else None
        if self.sink is not None:
            sink = share.parameter("sink", self.sink)
        return {"attn_bias": attn_bias, "scale": score.scale, "softcap": score.softcap, "sink": sink, **rules}


def _checked_together(key: object, value: object, cache: object) -> None:
    if value is not None and (key is None or isinstance(key, Memory)):
        given = "a Memory" if isinstance(key, Memory) else "no key"
        raise ArgumentError(f"value= goes with key=, but it came with {given}: give both tensors, or neither")
    if cache is not None and not isinstance(cache, KVCache):
        raise ArgumentError(
            f"cache must be a KVCache or None, but {type(cache).__name__} came: make one with attn.cache(), and give "
            "it to each call"
        )
    if cache is not None and key is not None:
        raise CacheError("a cache is for self-attention, but key= came: project cross-attention once with memory(key)")
