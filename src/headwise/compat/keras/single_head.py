"""Single head: Keras' Attention and AdditiveAttention, without projections, on headwise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from headwise.compat.inputs import chance, check_tensors
from headwise.compat.keras.lazy_weights import Later
from headwise.compat.keras.masks import Rows, joined, row_flags
from headwise.compat.keras.weights import as_array, as_weight, shapes_of
from headwise.errors import ArgumentError, ConversionError, ShapeError
from headwise.maps import AttentionMap, attention_map
from headwise.maps.constructors import additive_map
from headwise.ops import additive_attention, attention

__all__ = ["AdditiveAttention", "Attention"]

SCORE_MODES = ("dot", "concat")


class Attention(nn.Module):
    """keras.layers.Attention: one head over [query, value] or [query, value, key], scores q·k that are not scaled.

    use_scale: learn one number that multiplies the scores. score_mode: "dot", or "concat": w · sum tanh(q + k) with a
    learned number w, where the scale stands inside tanh. dropout: of the weights, in training. seed must be None:
    draws come from torch. A query that may attend to nothing gets zeros, where Keras' -1e9 gives the mean of all.

    >>> query, value = torch.randn(2, 5, 8), torch.randn(2, 7, 8)
    >>> Attention(use_scale=True)([query, value], use_causal_mask=True).shape
    torch.Size([2, 5, 8])
    """

    def __init__(
        self,
        use_scale: bool = False,
        score_mode: str = "dot",
        dropout: float = 0.0,
        seed: None = None,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if score_mode not in SCORE_MODES:
            raise ArgumentError(f'score_mode must be "dot" or "concat"; got {score_mode!r}')
        refuse_seed(seed)
        self.score_mode, self.dropout = score_mode, chance(dropout)
        factory = {"device": device, "dtype": dtype}
        self.scale = nn.Parameter(torch.ones((), **factory)) if use_scale else None  # type: ignore[arg-type]
        concat = nn.Parameter(torch.ones((), **factory)) if score_mode == "concat" else None  # type: ignore[arg-type]
        self.concat_score_weight = concat

    def forward(
        self,
        inputs: Sequence[Tensor],
        mask: Sequence[Tensor | None] | None = None,
        training: bool | None = None,
        return_attention_scores: bool = False,
        use_causal_mask: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """[query (B, T, D), value (B, S, Dv), key (B, S, D), or the value] -> (B, T, Dv), with scores if asked.

        mask: [of the query (B, T), of the value (B, S)], 0 = padding: outputs of padded queries are 0. The scores
        (B, T, S) are before dropout. use_causal_mask: key j up to query i, both counted from 0. training: None: as the
        module is set.
        """
        query, value, key = _inputs(inputs)
        of_query, of_value = _masks(mask)
        B, Lq, Lk = query.shape[0], query.shape[1], key.shape[1]
        rows = joined(Rows(None, of_value, None), shape=(B, Lq, Lk), device=query.device, is_causal=use_causal_mask)
        q, k, v = self._scaled(query)[:, None], self._scaled_key(key)[:, None], value[:, None]
        trains = self.training if training is None else training
        dropout, weight = self.dropout if trains else 0.0, self._weight(query)
        weights_map: AttentionMap
        if weight is None:
            out = attention(q, k, v, mask=rows, scale=1.0, dropout=dropout)[:, 0]
            weights_map = attention_map(q, k, mask=rows, scale=1.0)
        else:
            out = additive_attention(q, k, v, weight, mask=rows, dropout=dropout)[:, 0]
            weights_map = additive_map(q, k, weight, mask=rows)
        if of_query is not None:
            out = torch.where(row_flags("query_mask", of_query, B, Lq)[..., None], out, 0.0)
        return (out, weights_map.dense()[:, 0].to(out.dtype)) if return_attention_scores else out

    def load_keras_weights(self, arrays: Sequence[Any]) -> None:
        """Take the arrays of Keras' `layer.get_weights()`, all or none."""
        names = [name for name, _ in self.named_parameters()]
        shapes = [tuple(weight.shape) for weight in self.parameters()]
        shapes_given = shapes_of(arrays)
        if shapes_given != shapes:
            raise ConversionError(
                f"the weights must be {names} of the shapes {shapes}, but arrays of the shapes {shapes_given} came"
            )
        self.load_state_dict({name: as_weight(array) for name, array in zip(names, arrays, strict=True)})

    def keras_weights(self) -> list[Any]:
        """The weights as arrays for Keras' `layer.set_weights()`."""
        return [as_array(weight.detach().cpu().clone()) for weight in self.parameters()]

    def _scaled(self, query: Tensor) -> Tensor:
        return query if self.scale is None else query * self.scale

    def _scaled_key(self, key: Tensor) -> Tensor:
        return key if self.scale is None or self.score_mode == "dot" else key * self.scale

    def _weight(self, query: Tensor) -> Tensor | None:
        """The weight (D,) of additive scores; None: q·k."""
        if self.concat_score_weight is None:
            return None
        return self.concat_score_weight.expand(query.shape[-1])


class AdditiveAttention(Attention):
    """keras.layers.AdditiveAttention: one head over [query, value] or [query, value, key], scores sum s·tanh(q + k).

    use_scale: learn s, one number a feature, made at the first call; else s is 1. dropout, seed and empty rows as in
    `Attention`.

    >>> query, value = torch.randn(2, 5, 8), torch.randn(2, 7, 8)
    >>> AdditiveAttention()([query, value], mask=[None, torch.ones(2, 7)]).shape
    torch.Size([2, 5, 8])
    """

    def __init__(
        self,
        use_scale: bool = True,
        dropout: float = 0.0,
        seed: None = None,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(False, "dot", dropout, seed)
        self.use_scale = use_scale
        self._later = Later(device, dtype)

    def build(self, dim: int) -> None:
        """Make the scale for queries of `dim` features, Glorot-uniform as in Keras."""
        if self.use_scale:
            self.scale = nn.Parameter(torch.empty(dim, device=self._later.device, dtype=self._later.dtype))
            bound = math.sqrt(3.0 / dim)
            nn.init.uniform_(self.scale, -bound, bound)

    def load_keras_weights(self, arrays: Sequence[Any]) -> None:
        """Take the arrays of Keras' `layer.get_weights()`, all or none."""
        shapes_given = shapes_of(arrays)
        if self.scale is None and len(shapes_given) == 1 and len(shapes_given[0]) == 1:
            self._later = self._later.of(as_weight(arrays[0]))
            self.build(*shapes_given[0])
        super().load_keras_weights(arrays)

    def _scaled(self, query: Tensor) -> Tensor:
        return query

    def _scaled_key(self, key: Tensor) -> Tensor:
        return key

    def _weight(self, query: Tensor) -> Tensor | None:
        if self.use_scale and self.scale is None:
            self._later = self._later.met(query)
            self.build(query.shape[-1])
        return query.new_ones(query.shape[-1]) if self.scale is None else self.scale

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        if self.scale is None:
            self._later = self._later.moved(fn)
        return super()._apply(fn, recurse)  # type: ignore[no-untyped-call]  # torch leaves it untyped

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *rest: Any) -> None:
        weight = state_dict.get(f"{prefix}scale")
        if self.scale is None and weight is not None and weight.ndim == 1:
            self._later = self._later.of(weight)
            self.build(weight.shape[0])
        if self.use_scale and weight is None and self.scale is None:
            missing_keys: list[str] = rest[2]
            missing_keys.append(f"{prefix}scale")
        super()._load_from_state_dict(state_dict, prefix, *rest)


def refuse_seed(seed: object) -> None:
    """Refuse a seed of Keras, which would promise Keras' draws."""
    if seed is not None:
        raise ArgumentError(
            f"seed={seed} cannot give Keras' draws of dropout: leave it None, and call torch.manual_seed"
        )


def _inputs(inputs: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    if not isinstance(inputs, list | tuple) or len(inputs) not in (2, 3):
        kind = f"{len(inputs)} of them" if isinstance(inputs, list | tuple) else type(inputs).__name__
        raise ArgumentError(f"inputs must be [query, value] or [query, value, key], but {kind} came")
    query, value = inputs[0], inputs[1]
    key = inputs[2] if len(inputs) == 3 else value
    check_tensors(query=query, value=value, key=key)
    for name, x in (("query", query), ("value", value), ("key", key)):
        if x.ndim != 3:
            raise ShapeError(f"{name} must be (B, L, features), but came as {tuple(x.shape)}")
    return query, value, key


def _masks(mask: Sequence[Tensor | None] | None) -> tuple[Tensor | None, Tensor | None]:
    if mask is None:
        return None, None
    if not isinstance(mask, list | tuple) or len(mask) not in (2, 3) or (len(mask) == 3 and mask[2] is not None):
        raise ArgumentError(
            "mask must be [of the query, of the value], since Keras reads no third one: give the keys' padding as "
            "that of the values"
        )
    return mask[0], mask[1]
