"""Foreign arguments: other libraries' names for the arguments of attention, and the functions' in their place."""

from __future__ import annotations

__all__ = ["ADDED", "BY_PLACE", "CALLING", "MASKS"]

ADDED = "attn_bias= if it is numbers to add"
_MAPS = "take the weights from hw.attention_map(q, k, ...)"
_PLACES = "give q, k and v by their place"
# the same for the functions and for the layer
MASKS = {
    "is_causal": "give mask=hw.causal()",
    "causal": "give mask=hw.causal()",
    "use_causal_mask": "give mask=hw.causal()",
    "key_padding_mask": "give mask=hw.keys(~key_padding_mask), in which True is a key that may be seen",
    "attention_mask": f"give mask=hw.keys(attention_mask.bool()) if it is (B, Lk), of 1 for a token, and {ADDED}",
    "valid_lens": "give mask=hw.lengths(valid_lens)",
    "mask_mod": "give mask=hw.rule(mask_mod)",
    "sliding_window": "give mask=hw.window(keys=sliding_window)",
    "window_size": "give mask=hw.window(keys=...), or before= and after=",
    "cu_seqlens": "give mask=hw.masks.from_cu_seqlens(cu_seqlens)",
}
# to call a function of q, k and v
CALLING = {
    **MASKS,
    "attn_mask": f"give mask=attn_mask if it is bool, in which True may attend as in SDPA, and {ADDED}",
    "dropout_p": "give dropout=",
    "scaling": "give scale=",
    "softmax_scale": "give scale=",
    "logits_soft_cap": "give softcap=",
    "s_aux": "give sink=, (Hq,) one logit a head",
    "position_bias": "give attn_bias=",
    "enable_gqa": "leave it out, since Hk may divide Hq in every call",
    "need_weights": _MAPS,
    "return_weights": _MAPS,
    "output_attentions": _MAPS,
    "query": _PLACES,
    "key": _PLACES,
    "value": _PLACES,
}
BY_PLACE = "tensors go by their place and the rest by name, but more came by place: give mask=, attn_bias= or scale="
