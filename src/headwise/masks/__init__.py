"""Who may attend to whom. True means: this query may attend to this key, everywhere in headwise.

Foreign meanings (True = blocked, scores to add, lengths) enter only through functions whose names say both ends.
`python -m headwise.masks` draws every pattern.
"""

from headwise.masks.blocked_masks import from_blocked, to_blocked
from headwise.masks.conversions import (
    from_additive,
    from_attention_mask,
    from_cu_seqlens,
    from_valid_lens,
    to_additive,
    to_attention_mask,
    to_cu_seqlens,
    to_valid_lens,
)
from headwise.masks.flex import from_flex, to_flex
from headwise.masks.mask import Mask
from headwise.masks.patterns import allowed, as_mask, causal, documents, keys, lengths, prefix, rule, window
from headwise.masks.selection import picked

__all__ = [
    "Mask",
    "allowed",
    "as_mask",
    "causal",
    "documents",
    "from_additive",
    "from_attention_mask",
    "from_blocked",
    "from_cu_seqlens",
    "from_flex",
    "from_valid_lens",
    "keys",
    "lengths",
    "picked",
    "prefix",
    "rule",
    "to_additive",
    "to_attention_mask",
    "to_blocked",
    "to_cu_seqlens",
    "to_flex",
    "to_valid_lens",
    "window",
]
