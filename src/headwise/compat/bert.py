"""BERT's self-attention in Hugging Face models, taken over by headwise layers."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from headwise.compat.mapping import Ignored, Row, Table, fill
from headwise.errors import ConversionError
from headwise.layer import MultiHeadAttention
from headwise.masks import keys

__all__ = ["ATTENTION", "HeadwiseSelfAttention", "attention_layers", "take_over", "why_not"]

Model = TypeVar("Model", bound=nn.Module)

_NOT_ATTENTION = "it stays in the model: the norm and the residual come after attention"

ATTENTION = Table(
    "bert",
    rows=(
        Row("self.query.weight", "q_proj.weight"),
        Row("self.query.bias", "q_proj.bias"),
        Row("self.key.weight", "k_proj.weight"),
        Row("self.key.bias", "k_proj.bias"),
        Row("self.value.weight", "v_proj.weight"),
        Row("self.value.bias", "v_proj.bias"),
        Row("output.dense.weight", "out_proj.weight"),
        Row("output.dense.bias", "out_proj.bias"),
    ),
    ignored=(
        Ignored("output.LayerNorm.weight", _NOT_ATTENTION),
        Ignored("output.LayerNorm.bias", _NOT_ATTENTION),
    ),
)

# the classes that compute exactly what BERT's does, under the same names
SAME_AS_BERT = (
    "BertSelfAttention",
    "CamembertSelfAttention",
    "ElectraSelfAttention",
    "ErnieSelfAttention",
    "RobertaSelfAttention",
    "XLMRobertaSelfAttention",
)


class HeadwiseSelfAttention(nn.Module):
    """A headwise layer where a Hugging Face BERT has its self-attention; the output projection is in it already."""

    def __init__(self, attention: MultiHeadAttention) -> None:
        super().__init__()
        self.attention = attention

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        encoder_hidden_states: Tensor | None = None,
        past_key_values: object | None = None,
        # the model hands each layer everything it was called with (position ids, flags), also what BERT never reads
        **unread: object,
    ) -> tuple[Tensor, None]:
        """hidden_states (B, L, E) -> ((B, L, E), None). attention_mask (B, L), True = may attend, or 4-D bool."""
        if encoder_hidden_states is not None or past_key_values is not None:
            raise ConversionError(
                "a BERT on headwise layers must be run as an encoder, but it was given encoder states or a cache: "
                "call it with neither"
            )
        if unread.get("output_attentions"):
            raise ConversionError(
                "a BERT on headwise layers returns no attentions: watch it with hw.watch, and call the "
                "model without output_attentions"
            )
        padded = attention_mask is not None and attention_mask.ndim == 2
        mask = keys(attention_mask.bool()) if attention_mask is not None and padded else attention_mask
        return self.attention(hidden_states, mask=mask), None


def take_over(model: Model) -> Model:
    """A copy of a Hugging Face BERT-like model whose self-attention is done by headwise layers with its weights.

    The model given stays as it is. One that `why_not` has a reason against raises ConversionError with that reason.
    Devlin et al. 2018, arXiv:1810.04805.

    >>> from transformers import BertConfig, BertModel
    >>> sizes = dict(hidden_size=6, num_attention_heads=2, num_hidden_layers=3, intermediate_size=5, vocab_size=11)
    >>> ours = take_over(BertModel(BertConfig(**sizes)))
    >>> [name for name, layer in attention_layers(ours)][:2]
    ['encoder.layer.0.attention.self.attention', 'encoder.layer.1.attention.self.attention']
    """
    reason = why_not(model)
    if reason:
        raise ConversionError(f"only a BERT-like encoder can be taken over, but {reason}: leave this model as it is")
    ours = copy.deepcopy(model)
    config: Any = ours.config
    config._attn_implementation = _two_dimensional_masks()
    for block in _attention_blocks(ours):
        block.self = HeadwiseSelfAttention(_layer(block))
        block.output.dense = nn.Identity()
    return ours


def why_not(model: nn.Module) -> str:
    """The reason why `take_over` cannot serve a model, or "" if it can.

    >>> why_not(nn.Linear(2, 3))
    'Linear has no attention of BERT'
    """
    config = getattr(model, "config", None)
    if not any(_attention_blocks(model)):
        return f"{type(model).__name__} has no attention of BERT"
    if getattr(config, "is_decoder", False):
        return f"{type(model).__name__} is set up as a decoder (is_decoder=True)"
    positions = getattr(config, "position_embedding_type", None) or "absolute"
    if positions != "absolute":
        return f"{type(model).__name__} has {positions} positions"
    return ""


def attention_layers(model: nn.Module) -> Iterator[tuple[str, MultiHeadAttention]]:
    """The headwise layers of a model with their full names, in the order in which it holds them."""
    return ((name, module) for name, module in model.named_modules() if isinstance(module, MultiHeadAttention))


def _attention_blocks(model: nn.Module) -> Iterator[Any]:
    for module in model.modules():
        inner = getattr(module, "self", None)
        if type(inner).__name__ in SAME_AS_BERT and hasattr(module, "output"):
            yield module


def _layer(block: Any) -> MultiHeadAttention:
    theirs, dense = block.self, block.output.dense
    layer = MultiHeadAttention(
        theirs.query.in_features,
        theirs.num_attention_heads,
        head_dim=theirs.attention_head_size,
        out_dim=dense.out_features,
        dropout=theirs.dropout.p,
        device=dense.weight.device,
        dtype=dense.weight.dtype,
    )
    fill(layer, ATTENTION.to_headwise(block.state_dict()))
    frozen = {name for name, weight in block.named_parameters() if not weight.requires_grad}
    for row in ATTENTION.rows:
        for name in row.names:
            layer.get_parameter(name).requires_grad_(row.theirs not in frozen)
    return layer.train(theirs.training)


def _two_dimensional_masks() -> str:
    """The name under which Hugging Face hands the (B, L) padding mask through as it is, and no (B, 1, L, L) one."""
    from transformers.masking_utils import AttentionMaskInterface

    name = "headwise"
    AttentionMaskInterface.register(name, _padding_mask)
    return name


def _padding_mask(*, attention_mask: Tensor | None, mask_function: Callable[..., Tensor], **_: object) -> Tensor | None:
    from transformers.masking_utils import bidirectional_mask_function

    if mask_function is not bidirectional_mask_function:
        raise ConversionError(
            "a BERT on headwise layers takes a padding mask only, but the model was given a mask of another form: "
            "call it with a (B, L) attention_mask"
        )
    return attention_mask if attention_mask is None else attention_mask.to(torch.bool)
