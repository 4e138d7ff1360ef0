"""Intervening: changes of a running model's attention, and what they do to its output."""

from headwise.intervening.edits import AttentionEdits, Edits
from headwise.intervening.intervene import intervene

__all__ = ["AttentionEdits", "Edits", "intervene"]
