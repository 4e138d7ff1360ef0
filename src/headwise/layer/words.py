"""Words: what other libraries call the arguments of attention, and what to give the layer in their place."""

from __future__ import annotations

__all__ = ["BUILDING", "BY_NAME", "CALLING"]

_BATCH_FIRST = "sequences are batch first always, (B, L, E), so leave it out, and transpose(0, 1) those that are not"
_WEIGHTS = "the output is a tensor always, and the weights come from a watched call, with hw.watch(attn) as seen: ..."
_MASKED = "masks go with each call, as in attn(x, mask=hw.causal())"

# to build the layer
BUILDING = {
    "batch_first": _BATCH_FIRST,
    "add_zero_attn": 'give score=hw.DotProduct(sink="zero"), which is the same',
    "add_bias_kv": "hw.compat.torch.MultiheadAttention has it",
    "is_causal": _MASKED,
    "causal": _MASKED,
}
# to call it
CALLING = {
    "batch_first": _BATCH_FIRST,
    "need_weights": _WEIGHTS,
    "average_attn_weights": _WEIGHTS,
    "output_attentions": _WEIGHTS,
    "is_causal": "give mask=hw.causal()",
    "causal": "give mask=hw.causal()",
    "use_causal_mask": "give mask=hw.causal()",
    "key_padding_mask": "give mask=hw.keys(~key_padding_mask), in which True is a key that may be seen",
    "attn_mask": "give mask=hw.allowed(~attn_mask), in which True may attend, if its True is blocked, and attn_bias= "
    "if it is numbers to add",
    "attention_mask": "give mask=hw.keys(attention_mask.bool()) if it is (B, Lk), of 1 for a token, and attn_bias= if "
    "it is numbers to add",
    "valid_lens": "give mask=hw.lengths(valid_lens)",
    "past_key_values": "give cache=attn.cache()",
    "use_cache": "give cache=attn.cache()",
}
BY_NAME = (
    "MultiHeadAttention takes query, key and value by their place and the rest by name, but more came: give "
    "mask=hw.keys(~padding) for a padding mask of True = blocked, and leave need_weights out"
)
