"""Who may attend to whom. True means: this query may attend to this key, everywhere in headwise.

Foreign meanings (True = blocked, scores to add, lengths) enter only through the functions of `conversions`, whose
names say both ends. `python -m headwise.masks` draws every pattern.
"""

from headwise.masks.mask import Mask
from headwise.masks.patterns import allowed, as_mask, causal, documents, keys, lengths, prefix, rule, window

__all__ = ["Mask", "allowed", "as_mask", "causal", "documents", "keys", "lengths", "prefix", "rule", "window"]
