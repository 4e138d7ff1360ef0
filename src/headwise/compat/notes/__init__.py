"""The attention layers of four notes, by their names and their weights, right where a note is wrong.

docs/notes.md goes through the notes one by one; `NOTES` is the table of what each calls things.

>>> import headwise as hw
>>> layer = hw.compat.notes.note_000.MultiHeadAttention(model_dim=12, num_heads=3)
>>> list(layer.state_dict())[:4]
['q_proj.weight', 'q_proj.bias', 'k_proj.weight', 'k_proj.bias']
"""

from headwise.compat.notes import note_000, note_002, note_003, note_004
from headwise.compat.notes.table import NOTES, Note

__all__ = ["NOTES", "Note", "note_000", "note_002", "note_003", "note_004"]
