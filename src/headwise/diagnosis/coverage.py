"""Coverage: what an examination tried, and what it did not, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headwise.wording import say

__all__ = ["Missed", "Tried", "as_plain", "is_tried", "unfollowed"]

NOT = "no"


@dataclass(frozen=True)
class Missed:
    """What was not tried. reason: the sentence that says why; values: what stands in it."""

    reason: str
    values: Mapping[str, object] = field(default_factory=dict)


# True: it was tried; a text: it was, and how
Tried = bool | str | Missed


def as_plain(value: Any, *, lang: str) -> Any:
    """What was tried as plain data: True, a text, or "no: " and why not.

    >>> as_plain(Missed("doctor.missed.one_argument"), lang="en")
    'no: they come with the queries'
    """
    return f"{NOT}: {say(value.reason, lang=lang, **value.values)}" if isinstance(value, Missed) else value


def unfollowed(tried: Mapping[str, Any], *, lang: str) -> dict[str, Any]:
    """What was tried of a target in which no attention was found: of attention nothing."""
    missed = as_plain(Missed("doctor.missed.not_followed"), lang=lang)
    return {**tried, **{name: missed for name in ("self", "cross", "mask", "cache", "causal") if name in tried}}


def is_tried(value: Any) -> bool:
    """Whether plain data says that a thing was tried."""
    return bool(value) and value != NOT and not str(value).startswith(f"{NOT}: ")
