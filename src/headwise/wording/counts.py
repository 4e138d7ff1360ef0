"""Counts: a number and its noun, in the singular for 1."""

__all__ = ["counted"]


def counted(count: int, noun: str) -> str:
    """A number and a noun whose plural ends in s.

    >>> counted(1, "call"), counted(2, "call"), counted(0, "call")
    ('1 call', '2 calls', '0 calls')
    """
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
