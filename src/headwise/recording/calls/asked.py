"""Asked: what a search is asked for, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headwise.recording.calls.plan import Named, Plan
from headwise.recording.calls.trying import Tried

__all__ = ["Found", "Wish"]


@dataclass(frozen=True)
class Found:
    """plans: the settings that ran, the richest first. failures: settings that raised. has_nan: some call ran, and what
    it gave held NaN, which was a failure."""

    plans: tuple[Plan, ...]
    failures: tuple[Tried, ...]
    has_nan: bool = False


@dataclass(frozen=True)
class Wish:
    """What the person said. init, call: what stands; known: what its symbols mean; ranks: how many axes an input has;
    cross: whether keys may, must or must not have a length of their own. lengths: that a built module may insist on.
    finite: whether a call that gives NaN has failed."""

    init: Mapping[str, Any] = field(default_factory=dict)
    call: Mapping[str, Any] = field(default_factory=dict)
    known: Mapping[str, Named] = field(default_factory=dict)
    ranks: Mapping[str, int] = field(default_factory=dict)
    cross: bool | None = None
    lengths: tuple[int, ...] = ()
    finite: bool = True
