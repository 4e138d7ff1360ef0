"""Foreign arguments: other libraries' names for the arguments of attention, and the layer's in their place."""

from __future__ import annotations

from headwise.ops.foreign_arguments import ADDED, MASKS

__all__ = ["BUILDING", "BUILT_BY_NAME", "BY_NAME", "CALLING"]

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
    "d_model": "give embed_dim=",
    "hidden_size": "give embed_dim=",
    "n_heads": "give num_heads=",
    "nhead": "give num_heads=",
    "heads": "give num_heads=",
    "dropout_p": "give dropout=",
    "scale": "give score=hw.DotProduct(scale=...)",
    "softcap": "give score=hw.DotProduct(softcap=...)",
}
# to call it
CALLING = {
    **MASKS,
    "batch_first": _BATCH_FIRST,
    "need_weights": _WEIGHTS,
    "average_attn_weights": _WEIGHTS,
    "output_attentions": _WEIGHTS,
    "attn_mask": f"give mask=hw.allowed(~attn_mask), in which True may attend, if its True is blocked, and {ADDED}",
    "position_ids": "give positions=",
    "past_key_values": "give cache=attn.cache()",
    "use_cache": "give cache=attn.cache()",
    **dict.fromkeys(("dropout", "dropout_p"), "give dropout= to MultiHeadAttention, which drops in training only"),
    **dict.fromkeys(("scale", "softmax_scale"), "give score=hw.DotProduct(scale=...) to MultiHeadAttention"),
    "softcap": "give score=hw.DotProduct(softcap=...) to MultiHeadAttention",
    "enable_gqa": "give num_kv_heads= to MultiHeadAttention",
}
BUILT_BY_NAME = (
    "MultiHeadAttention takes embed_dim and num_heads by their place and the rest by name, but more came: give "
    "dropout= or bias="
)
BY_NAME = (
    "MultiHeadAttention takes query, key and value by their place and the rest by name, but more came: give "
    "mask=hw.keys(~padding) for a padding mask of True = blocked, and leave need_weights out"
)
