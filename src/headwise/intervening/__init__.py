"""Intervening: changes of a running model's attention, and what they do to its output."""

from headwise.intervening.edits import AttentionEdits, Edits
from headwise.intervening.effects_table import Effects, HeadEffect
from headwise.intervening.entry_point import intervene
from headwise.intervening.head_effects import head_effects

__all__ = ["AttentionEdits", "Edits", "Effects", "HeadEffect", "head_effects", "intervene"]
