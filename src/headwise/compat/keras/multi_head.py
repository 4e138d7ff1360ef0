"""Keras' layers of several heads, MultiHeadAttention and GroupQueryAttention, and layers made from Keras' own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from headwise.compat.inputs import count
from headwise.compat.keras.heads import HeadSizes, KerasHeads
from headwise.compat.keras.single_head import AdditiveAttention, Attention, refuse_seed
from headwise.compat.keras.weights import as_weight
from headwise.errors import ArgumentError, ConversionError

__all__ = ["GroupQueryAttention", "MultiHeadAttention", "from_keras"]

# what belongs to training by Keras, or to layers that are made anew by it
OF_TRAINING = (
    "kernel_regularizer", "bias_regularizer", "activity_regularizer", "kernel_constraint", "bias_constraint"
)  # fmt: skip
OF_BEGINNING = ("kernel_initializer", "bias_initializer", "seed", "name", "trainable", "dtype")


class MultiHeadAttention(KerasHeads):
    """keras.layers.MultiHeadAttention: key_dim and value_dim are of one head, and value comes before key in a call.

    value_dim: None: key_dim. output_shape: None: the width of the query. sliding_window: keys less than so many
    positions away on either side, None: all. flash_attention must not be True: headwise chooses its own kernels.
    Keras' initializers, regularizers and constraints are no arguments here: it starts as Keras does by default. The
    linears query, key, gate, value and attention_output are made at the first call, or by `build`: before there is an
    optimizer. Two faults of keras 3.15.1 are not kept: it ignores an explicit query_mask, and beside an attention_mask
    of four axes it spreads the samples of query_mask, value_mask and key_mask over the heads; here they stay samples.

    >>> layer = MultiHeadAttention(num_heads=2, key_dim=3, value_dim=5)
    >>> target, source = torch.randn(2, 4, 8), torch.randn(2, 6, 9)
    >>> out, scores = layer(target, source, return_attention_scores=True)
    >>> out.shape, scores.shape
    (torch.Size([2, 4, 8]), torch.Size([2, 2, 4, 6]))
    """

    def __init__(
        self,
        num_heads: int,
        key_dim: int,
        value_dim: int | None = None,
        dropout: float = 0.0,
        use_bias: bool = True,
        output_shape: int | Sequence[int] | None = None,
        attention_axes: int | Sequence[int] | None = None,
        sliding_window: int | None = None,
        flash_attention: bool | None = None,
        *,
        use_gate: bool = False,
        seed: None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        _check_sizes(num_heads=num_heads, key_dim=key_dim, value_dim=value_dim)
        _refuse_flash(flash_attention)
        refuse_seed(seed)
        super().__init__(
            HeadSizes(num_heads, num_heads, key_dim, key_dim if value_dim is None else value_dim),
            dropout=dropout, use_bias=use_bias, output_shape=output_shape, attention_axes=attention_axes,
            sliding_window=sliding_window, use_gate=use_gate, device=device, dtype=dtype,
        )  # fmt: skip


class GroupQueryAttention(KerasHeads):
    """keras.layers.GroupQueryAttention: equal groups of query heads, side by side, read one key/value head each.

    Everything else is as in `MultiHeadAttention`; the output is as wide as the query. arXiv:2305.13245.

    >>> layer = GroupQueryAttention(head_dim=3, num_query_heads=4, num_key_value_heads=2)
    >>> layer(torch.randn(2, 5, 8), torch.randn(2, 7, 8), use_causal_mask=True).shape
    torch.Size([2, 5, 8])
    """

    def __init__(
        self,
        head_dim: int,
        num_query_heads: int,
        num_key_value_heads: int,
        dropout: float = 0.0,
        use_bias: bool = True,
        sliding_window: int | None = None,
        flash_attention: bool | None = None,
        *,
        use_gate: bool = False,
        seed: None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        _check_sizes(head_dim=head_dim, num_query_heads=num_query_heads, num_key_value_heads=num_key_value_heads)
        if num_query_heads % num_key_value_heads:
            raise ArgumentError(
                f"num_key_value_heads={num_key_value_heads} must divide num_query_heads={num_query_heads}: each "
                "key/value head serves an equal group of query heads"
            )
        _refuse_flash(flash_attention)
        refuse_seed(seed)
        super().__init__(
            HeadSizes(num_query_heads, num_key_value_heads, head_dim, head_dim),
            dropout=dropout, use_bias=use_bias, output_shape=None, attention_axes=1,
            sliding_window=sliding_window, use_gate=use_gate, device=device, dtype=dtype,
        )  # fmt: skip


# Keras exports its GroupedQueryAttention as GroupQueryAttention
CLASSES: dict[str, type[KerasHeads] | type[Attention]] = {
    "MultiHeadAttention": MultiHeadAttention,
    "GroupedQueryAttention": GroupQueryAttention,
    "Attention": Attention,
    "AdditiveAttention": AdditiveAttention,
}


def from_keras(layer: Any) -> nn.Module:
    """A built attention layer of Keras as a torch module with copies of its weights, in eval mode.

    Any backend of Keras will do. Frozen where the layer is not trainable. Regularizers and constraints, and a policy
    that computes in another dtype than it keeps, have no counterpart and are refused with ConversionError; seeds and
    initializers are for layers yet to be made, and are left.
    """
    kind = type(layer)
    if kind.__name__ not in CLASSES or not kind.__module__.startswith("keras."):
        raise ConversionError(
            f"from_keras takes Keras' own {', '.join(CLASSES)}, but {kind.__module__}.{kind.__qualname__} came: of a "
            "subclass headwise cannot know what it computes"
        )
    if not layer.built:
        raise ConversionError(f"{layer.name} has no weights yet: call it once, or layer.build(shapes), before")
    config = dict(layer.get_config())
    refused = [name for name in OF_TRAINING if config.pop(name, None) is not None]
    if refused:
        raise ConversionError(
            f"{layer.name} has {', '.join(refused)}, which Keras applies in training: add its loss or its step to "
            "yours, and convert a layer without"
        )
    if layer.compute_dtype != layer.variable_dtype:
        raise ConversionError(
            f"{layer.name} keeps {layer.variable_dtype} and computes in {layer.compute_dtype}: convert one of a single "
            "dtype, and use torch.autocast"
        )
    for name in OF_BEGINNING:
        config.pop(name, None)
    arrays = layer.get_weights()
    dtype = as_weight(arrays[0]).dtype if arrays else None
    ours = CLASSES[kind.__name__](**config, dtype=dtype)
    ours.load_keras_weights(arrays)
    return ours.requires_grad_(bool(layer.trainable)).eval()


def _check_sizes(**sizes: int | None) -> None:
    for name, size in sizes.items():
        if size is not None:
            count(name, size)


def _refuse_flash(flash_attention: bool | None) -> None:
    if flash_attention:
        raise ArgumentError(
            "flash_attention=True asks for a kernel of Keras, but headwise chooses its own: leave it None; "
            "hw.backends says which runs"
        )
