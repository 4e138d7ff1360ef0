"""KerasHeads: what Keras' MultiHeadAttention and GroupQueryAttention have in common, on headwise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from headwise.compat.inputs import chance, check_tensors, count, width_of
from headwise.compat.keras.axes import AttentionAxes
from headwise.compat.keras.lazy_weights import Later
from headwise.compat.keras.masks import Rows, joined
from headwise.compat.keras.weights import Projection, all_or_none, shapes_of
from headwise.compat.mask_flags import as_flags
from headwise.errors import ArgumentError, ConversionError, ShapeError
from headwise.maps import attention_map
from headwise.masks import Mask
from headwise.ops import attention
from headwise.ops.call import autocasts

__all__ = ["HeadSizes", "KerasHeads"]


class HeadSizes(NamedTuple):
    """Query heads Hq, key/value heads Hk, and their widths D and Dv."""

    Hq: int
    Hk: int
    D: int
    Dv: int


class KerasHeads(nn.Module):
    """Linears named query, key, gate, value and attention_output, made at the first call, and attention between them.

    output_shape: of a token's output, None: the width of the query. attention_axes: None: all between samples and
    features. sliding_window: keys less than so many positions away, None: all. use_gate: multiply the heads by
    sigmoid(gate(query)) before the output. What is not here in Keras' constructor is refused unless at its default.
    """

    def __init__(
        self,
        heads: HeadSizes,
        *,
        dropout: float,
        use_bias: bool,
        output_shape: int | Sequence[int] | None,
        attention_axes: int | Sequence[int] | None,
        sliding_window: int | None,
        use_gate: bool,
        device: torch.device | str | None,
        dtype: torch.dtype | None,
    ) -> None:
        super().__init__()
        is_count = isinstance(sliding_window, int) and not isinstance(sliding_window, bool) and sliding_window > 0
        if sliding_window is not None and not is_count:
            raise ArgumentError(f"sliding_window counts keys, so it must be 1 or more, or None; got {sliding_window!r}")
        self.heads, self.dropout, self.use_bias, self.use_gate = heads, chance(dropout), use_bias, use_gate
        sizes = output_shape if isinstance(output_shape, list | tuple) else (output_shape,)
        self.output_shape = () if output_shape is None else tuple(count("output_shape", size) for size in sizes)
        self.attention_axes, self.sliding_window = attention_axes, sliding_window
        self._later = Later(device, dtype)
        for name in self.names:
            self.register_module(name, None)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the linears, in the order of Keras' weights."""
        return ("query", "key", *(("gate",) if self.use_gate else ()), "value", "attention_output")

    @property
    def built(self) -> bool:
        """Whether the widths of the inputs are known."""
        return getattr(self, "query") is not None  # noqa: B009  declared by register_module

    def build(
        self, query_shape: Sequence[int], value_shape: Sequence[int], key_shape: Sequence[int] | None = None
    ) -> None:
        """Make the linears for inputs of these shapes, of which only the last sizes count; Glorot-uniform, biases 0."""
        key_shape = value_shape if key_shape is None else key_shape
        for projection in self._projections(query_shape[-1], key_shape[-1], value_shape[-1]):
            linear = nn.Linear(math.prod(projection.inputs), math.prod(projection.outputs), bias=self.use_bias,
                               device=self._later.device, dtype=self._later.dtype)  # fmt: skip
            nn.init.xavier_uniform_(linear.weight)
            if self.use_bias:
                nn.init.zeros_(linear.bias)
            setattr(self, projection.name, linear)

    def load_keras_weights(self, arrays: Sequence[Any]) -> None:
        """Take the arrays of Keras' `layer.get_weights()`, all or none; makes the linears where they are not yet made.

        They are then made in the dtype of the arrays unless told otherwise. ConversionError names what does not fit.
        """
        kernels = shapes_of(arrays)[:: 2 if self.use_bias else 1]
        projections = self._current()
        if not self.built and len(kernels) == len(self.names) and all(kernels):
            widths = {name: kernel[0] for name, kernel in zip(self.names, kernels, strict=True)}
            projections = self._projections(widths["query"], widths["key"], widths["value"])
        tensors = all_or_none(projections, arrays, has_bias=self.use_bias)
        if not self.built:
            self._later = self._later.of(tensors["query.weight"])
            self.build(*((projections[self.names.index(name)].inputs) for name in ("query", "value", "key")))
        self.load_state_dict(tensors)

    def keras_weights(self) -> list[Any]:
        """The weights as arrays for Keras' `layer.set_weights()`."""
        if not self.built:
            raise ConversionError(f"{type(self).__name__} has no weights yet: call it once, or build(shapes), before")
        arrays = []
        for projection in self._current():
            arrays += projection.to_keras(self.get_submodule(projection.name))
        return arrays

    def forward(
        self,
        query: Tensor,
        value: Tensor,
        key: Tensor | None = None,
        query_mask: Tensor | None = None,
        value_mask: Tensor | None = None,
        key_mask: Tensor | None = None,
        attention_mask: Tensor | None = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
        use_causal_mask: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """query (B, T, ·), value (B, S, ·), key (B, S, ·), None: the value -> (B, T, output), with scores if asked.

        query_mask (B, T), value_mask and key_mask (B, S), attention_mask (T, S), (B, T, S) or (B, H, T, S): 0 =
        blocked. use_causal_mask: key j up to query i, both counted from 0, also where T and S differ. The scores
        (B, H, T, S) are before dropout. training: None: as the module is set. A query that may attend to nothing gets
        zeros before the output, whether scores are asked for or not.
        """
        key = value if key is None else key
        check_tensors(query=query, value=value, key=key)
        axes = AttentionAxes.of(self.attention_axes, query)
        for name, x in (("value", value), ("key", key)):
            axes.check(query, name, x)
        if value.shape[:-1] != key.shape[:-1]:
            raise ShapeError(f"each key has a value, but key {tuple(key.shape)} and value {tuple(value.shape)} came")
        mask = self._mask(axes, query, key, Rows(query_mask, value_mask, key_mask), attention_mask, use_causal_mask)
        if not self.built:
            self._later = self._later.met(query)
            self.build(query.shape, value.shape, key.shape)
        self._check_fit(query=query, value=value, key=key)
        flat = axes.flat(query)
        H = self.heads
        q, k, v = (
            self._split("query", flat, H.Hq),
            self._split("key", axes.flat(key), H.Hk),
            self._split("value", axes.flat(value), H.Hk),
        )
        trains = self.training if training is None else training
        mixed = attention(q, k, v, mask=mask, dropout=self.dropout if trains else 0.0)
        if self.use_gate:
            mixed = mixed * torch.sigmoid(self._split("gate", flat, H.Hq))
        out = axes.output(self._linear("attention_output", mixed.transpose(1, 2).flatten(2)), query, self._out(query))
        if not return_attention_scores:
            return out
        return out, axes.scores(attention_map(q, k, mask=mask).dense().to(out.dtype), query, key)

    def _check_fit(self, **inputs: Tensor) -> None:
        """Raise unless inputs have the widths and the dtype of the linears that read them."""
        for name, x in inputs.items():
            linear = self.get_submodule(name)
            if width_of(linear) not in (None, x.shape[-1]):
                raise ShapeError(
                    f"{name} must be (B, ..., width={width_of(linear)}), but came as {tuple(x.shape)}: the first call "
                    "settled the width"
                )
            if type(linear) is nn.Linear and linear.weight.dtype is not x.dtype and not autocasts(x):
                raise ArgumentError(
                    f"{name} must be in the dtype of the weights, {linear.weight.dtype}, but {x.dtype} came: cast one "
                    "of them, as Keras does by itself"
                )

    def _mask(
        self,
        axes: AttentionAxes,
        query: Tensor,
        key: Tensor,
        rows: Rows,
        attention_mask: Tensor | None,
        is_causal: bool,
    ) -> Mask | None:
        needs_plain = is_causal or self.sliding_window is not None or any(row is not None for row in rows)
        if needs_plain and not axes.is_plain:
            raise ArgumentError(
                f"a query {tuple(query.shape)} with attention_axes={self.attention_axes} takes no mask but "
                "attention_mask: give the pairs there"
            )
        flags = None if attention_mask is None else axes.mask(as_flags("attention_mask", attention_mask), query, key)
        B, Lq, Lk = query.shape[0], query.shape[1], key.shape[1]
        return joined(
            rows, shape=(B, Lq, Lk), device=query.device, attention_mask=flags, is_causal=is_causal,
            sliding_window=self.sliding_window,
        )  # fmt: skip

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        if not self.built:
            self._later = self._later.moved(fn)
        return super()._apply(fn, recurse)  # type: ignore[no-untyped-call]  # torch leaves it untyped

    def _out(self, query: Tensor) -> tuple[int, ...]:
        return self.output_shape or (query.shape[-1],)

    def _linear(self, name: str, x: Tensor) -> Tensor:
        out: Tensor = self.get_submodule(name)(x)
        return out

    def _split(self, name: str, x: Tensor, heads: int) -> Tensor:
        split: Tensor = self._linear(name, x).unflatten(-1, (heads, -1)).transpose(1, 2)
        return split

    def _projections(self, query: int, key: int, value: int) -> tuple[Projection, ...]:
        H = self.heads
        sizes = {
            "query": ((query,), (H.Hq, H.D)),
            "key": ((key,), (H.Hk, H.D)),
            "gate": ((query,), (H.Hq, H.Dv)),
            "value": ((value,), (H.Hk, H.Dv)),
            "attention_output": ((H.Hq, H.Dv), self.output_shape or (query,)),
        }
        return tuple(Projection(name, *sizes[name]) for name in self.names)

    def _current(self) -> tuple[Projection, ...]:
        """The linears as they are; before they are made, with widths of 0."""
        if not self.built:
            return self._projections(0, 0, 0)
        widths = (self.get_submodule(name).in_features for name in ("query", "key", "value"))
        return self._projections(*widths)  # type: ignore[arg-type]  # they are Linears

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *rest: Any) -> None:
        names = [f"{prefix}{name}.weight" for name in ("query", "value", "key")]
        if not self.built and all(name in state_dict for name in names):
            self._later = self._later.of(state_dict[names[0]])
            self.build(*(state_dict[name].shape for name in names))
        if not self.built:
            # torch asks only the linears that are there
            missing_keys: list[str] = rest[2]
            wanted = [f"{prefix}{name}.weight" for name in self.names]
            missing_keys += [name for name in wanted if name not in state_dict]
        super()._load_from_state_dict(state_dict, prefix, *rest)
