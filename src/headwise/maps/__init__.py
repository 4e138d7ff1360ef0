"""Maps: the exact weights of attention as a lazy matrix (B, Hq, Lq, Lk), in O(L) memory."""

from headwise.maps.constructors import additive_map, attention_map
from headwise.maps.files import load_maps, save_maps
from headwise.maps.heads import HeadMean
from headwise.maps.logits import Logits
from headwise.maps.lse import natural_lse
from headwise.maps.map import AttentionMap

__all__ = [
    "AttentionMap",
    "HeadMean",
    "Logits",
    "additive_map",
    "attention_map",
    "load_maps",
    "natural_lse",
    "save_maps",
]
