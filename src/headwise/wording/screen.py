"""Text on a screen: nothing in it may act, and how many columns it takes."""

from __future__ import annotations

import unicodedata

__all__ = ["columns", "fit", "visible"]

# categories that move the cursor, turn the direction of writing, are unseen, or cannot be written at all
_ACTING = ("Cc", "Cf", "Cs", "Zl", "Zp")
# these join or part letters, as Persian and Indian scripts and emoji need
_KEPT = "\u200c\u200d"


def visible(text: str) -> str:
    r"""The text with everything spelled out that a terminal would obey or not show.

    >>> visible("a\x1b[31mred\n")
    'a\\x1b[31mred\\n'
    >>> visible("  ")
    '␣␣'
    """
    if text and not text.strip(" "):
        return "␣" * len(text)
    return "".join(map(_spelled, text))


def columns(text: str) -> int:
    """How many columns a text takes in a terminal.

    >>> columns("ab"), columns("你好")
    (2, 4)
    """
    from rich.cells import cell_len

    return cell_len(text)


def fit(text: str, width: int) -> str:
    """The text cut or filled up to exactly so many columns.

    >>> fit("animal", 4), fit("it", 4)
    ('ani…', 'it  ')
    """
    from rich.cells import set_cell_size

    return set_cell_size(text, width) if columns(text) <= width else set_cell_size(text, width - 1) + "…"


def _spelled(character: str) -> str:
    if character in _KEPT or unicodedata.category(character) not in _ACTING:
        return character
    return character.encode("unicode_escape").decode("ascii")
