"""Projection names: which side of an attention the name of a parameter says that it is of."""

from __future__ import annotations

__all__ = ["KEYS", "role_of"]

# what arguments are for that hold keys and their values
KEYS = ("key", "value")

WORDS = {"q": ("query", "queries", "wq"), "k": ("key", "keys", "wk"), "v": ("value", "values", "wv")}


def role_of(name: str) -> str:
    """ "q", "k" or "v"; "": it does not say.

    >>> [role_of(name) for name in ("to_q.weight", "value", "join")]
    ['q', 'v', '']
    """
    for word in name.lower().replace(".", "_").split("_"):
        for side, others in WORDS.items():
            if word == side or word in others:
                return side
    return ""
