"""Embedding tables: which size bounds the numbers of tokens, by its name or by the tables that were built of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import nn

from headwise.calls.plan import Named
from headwise.calls.roles import init_role

__all__ = ["vocabularies"]

# a table has room for padding, and for what is masked
SPARE = 3


def vocabularies(known: Mapping[str, Named], modules: Sequence[nn.Module], sizes: Mapping[str, int]) -> list[str]:
    """The symbols that bound token numbers, the first first. sizes: of the symbols, as the modules were built."""
    named = [name for name in known if init_role(name) == "vocabulary" and "type" not in name]
    rows = [each.num_embeddings for each in modules if isinstance(each, nn.Embedding)]
    free = [
        name
        for name, each in known.items()
        if each.meaning == "parameter" and not each.equals and init_role(each.said or name) in ("", "classes")
    ]
    fitting = [name for row in rows for name in free if 0 <= row - sizes.get(name, row + 1) < SPARE]
    return named or list(dict.fromkeys(fitting))[:1]
