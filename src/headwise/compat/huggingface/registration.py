"""Registration: the attention function and the mask function that models of transformers call."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from headwise.compat.huggingface.masks import HandedMask, handed
from headwise.compat.huggingface.spread import check_spread
from headwise.compat.huggingface.weights import dense_weights, weights_are_asked_for
from headwise.errors import ArgumentError, ConversionError, MaskError
from headwise.masks import Mask, allowed, causal
from headwise.ops import attention
from headwise.ops.active_spread import active_spread
from headwise.ops.call import Rules
from headwise.wording import say

__all__ = ["register", "unregister"]

# keywords that models hand to every attention function and that change no number of this one, each with the reason
HARMLESS = {
    "deterministic": "a wish of flash-attention",
    "encoder_hidden_states": "keys and values have been made of it",
    "logits_to_keep": "read after the last layer",
    "num_items_in_batch": "read by the loss",
    "output_attentions": "weights are made beside the output",
    "output_hidden_states": "read by the model",
    "output_router_logits": "read by the model",
    "position_ids": "the rotation has been applied, and packed sequences are in the mask",
    "return_dict": "read by the model",
    "sliding_window": "the window is in the mask",
    "use_cache": "the keys and values that come are those of the cache",
}
# names that transformers reads as something else than a registered function
TAKEN = ("eager", "flash", "flex", "kernel", "paged", "sdpa")


def register(name: str = "headwise") -> None:
    """Let models of transformers run on `hw.attention`: `attn_implementation="headwise"`.

    name: what the implementation is called, an identifier. Registering twice is harmless. Models may be loaded with it
    (`from_pretrained(..., attn_implementation="headwise")`) or switched to it (`model.set_attn_implementation`).

    Padding, causal and window masks, softcap, sinks (s_aux), position_bias, grouped heads, caches and dropout are
    those of the model. Logits equal those of eager attention; a query that may attend to nothing, which is padding,
    gets zeros where eager gives it the mean of all values. output_attentions=True returns the weights (B, H, Lq, Lk)
    of eager, but before dropout, and warns where those of all layers take more than a GiB: `hw.watch` gives maps
    instead. The output is the same with and without. A keyword that is not known to be harmless is refused. A model
    that writes its own softmax keeps it where it takes no mask from transformers, and is refused where it does.
    For `transformers` 5.23: AttentionInterface and AttentionMaskInterface.

    >>> from transformers import LlamaConfig, LlamaModel
    >>> register()
    >>> sizes = dict(hidden_size=8, intermediate_size=5, num_hidden_layers=2, num_attention_heads=4, vocab_size=11)
    >>> model = LlamaModel._from_config(LlamaConfig(**sizes), attn_implementation="headwise")
    >>> model(torch.tensor([[1, 2, 3]])).last_hidden_state.shape
    torch.Size([1, 3, 8])
    """
    if not isinstance(name, str) or not name.isidentifier() or any(word in name for word in TAKEN):
        raise ArgumentError(
            f"name must be an identifier without {', '.join(TAKEN)} in it, which transformers reads as implementations "
            f'of its own, but {name!r} came: give another, such as "headwise"'
        )
    attentions, masks = _interfaces()
    attentions.register(name, _attention)
    masks.register(name, handed)


def unregister(name: str = "headwise") -> None:
    """Take the implementation out again, if it is there; a model that still asks for it gets transformers' KeyError.

    >>> register("mine")
    >>> unregister("mine")
    """
    attentions, masks = _interfaces()
    for interface, ours in ((attentions, _attention), (masks, handed)):
        # transformers 5.23 has no method for it
        if interface._global_mapping.get(name) is ours:
            del interface._global_mapping[name]


def _interfaces() -> tuple[Any, Any]:
    try:
        from transformers import AttentionInterface, AttentionMaskInterface
    except ImportError as error:
        raise ConversionError(
            "attention of Hugging Face models needs transformers 5.23 or newer, which cannot be imported here: "
            + say("install.extra", extra="models")
        ) from error
    return AttentionInterface, AttentionMaskInterface


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | HandedMask | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    position_bias: Tensor | None = None,
    # what families hand over besides; all of it is known, or refused
    **beside: Any,
) -> tuple[Tensor, Tensor | None]:
    """The attention function of transformers: q, k, v (B, H, L, D) -> ((B, Lq, Hq, Dv), weights or None).

    The weights are (B, Hq, Lq, Lk) where the model is asked for them, and are made beside the output, not for it.
    attention_mask says all of who may attend to whom; where there is none, is_causal does.
    """
    _refuse_unread(beside)
    is_asked = weights_are_asked_for(beside)
    mask, bias = _read(attention_mask)
    if attention_mask is None:
        mask = _by_flag(module, query, key, is_causal, beside.get("sliding_window"))
    if position_bias is not None:
        bias = position_bias if bias is None else position_bias + bias
    if query.shape[0] == 1 < key.shape[0]:
        # learned queries, the same for all samples
        query = query.expand(key.shape[0], -1, -1, -1)
    sink = None if s_aux is None else s_aux.reshape(-1)
    rules: Rules = {
        "mask": mask, "attn_bias": bias, "scale": scaling, "softcap": softcap, "sink": sink,
        "dropout": dropout if module.training else 0.0,
    }  # fmt: skip
    # a checkpoint calls it again after the `with`
    spread = attention_mask.spread if isinstance(attention_mask, HandedMask) else active_spread()
    if spread is not None:
        check_spread(spread, query, key, beside.get("position_ids"), is_asked=is_asked)
    out = (attention if spread is None else spread.queries.attention)(query, key, value, **rules)
    return out.transpose(1, 2).contiguous(), dense_weights(module, query, key, rules) if is_asked else None


def _refuse_unread(beside: dict[str, Any]) -> None:
    """Refuse what would change the numbers."""
    unread = [name for name, value in beside.items() if value is not None and name not in HARMLESS]
    if unread:
        raise ArgumentError(
            f"every keyword of an attention function must be used, but {', '.join(sorted(unread))} came, which "
            'headwise does not know: leave it out, or load the model with attn_implementation="eager"'
        )


def _read(attention_mask: Tensor | HandedMask | None) -> tuple[Mask | None, Tensor | None]:
    """The mask and the scores to add, from what a model passes."""
    if attention_mask is None:
        return None, None
    if isinstance(attention_mask, HandedMask):
        return attention_mask.mask, None
    if not isinstance(attention_mask, Tensor):
        raise MaskError(
            f"attention_mask must be a tensor when it reaches attention, but {type(attention_mask).__name__} came, "
            "which is of another attn_implementation: let transformers make it, or give a tensor"
        )
    if attention_mask.ndim != 4 or not (attention_mask.dtype is torch.bool or attention_mask.is_floating_point()):
        raise MaskError(
            "attention_mask must be 4-D when it reaches attention, bool (True = may attend) or floating (scores to "
            f"add), but {attention_mask.dtype} {tuple(attention_mask.shape)} came: give the model a 2-D mask of 0 and "
            "1, or such a 4-D one"
        )
    if attention_mask.dtype is torch.bool:
        return allowed(attention_mask), None
    # the least number of the dtype stands for a blocked key, also in a row that has no other
    blocked = attention_mask <= torch.finfo(attention_mask.dtype).min
    return allowed(~blocked), attention_mask.masked_fill(blocked, 0.0)


def _by_flag(module: nn.Module, query: Tensor, key: Tensor, is_causal: bool | None, reach: int | None) -> Mask | None:
    """The mask where the model made none."""
    Lq, Lk = query.shape[2], key.shape[2]
    if Lq == 1 or is_causal is False:
        return None
    if is_causal is None and not getattr(module, "is_causal", False):
        return None
    if is_causal is None or Lq != Lk or reach is not None:
        raise MaskError(
            f"{type(module).__name__} must say who may attend to whom, but no attention_mask came for Lq={Lq} and "
            f"Lk={Lk} with is_causal={is_causal} and sliding_window={reach}, which eager reads as all pairs and sdpa "
            "as causal: give it a mask, or is_causal=False"
        )
    return causal()
