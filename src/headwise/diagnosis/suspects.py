"""Suspects: what the checks of a run hand to the examination: a kind, a place, and what would put it right."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headwise.diagnosis.replacing import Site
from headwise.recording import Operation, Span

__all__ = ["Suspect"]


@dataclass(frozen=True)
class Suspect:
    """One thing that is wrong, or odd. span: where. stand_ins: what would put it right, by site; {}: not known.

    patch: the source that would stand in place of the span, "": none is known. said: values for its sentences.
    is_local: its stand-ins are right for the shapes of its own plan only. words: which sentences tell it, "": those of
    its kind.
    """

    kind: str
    span: Span | None
    stand_ins: Mapping[Site, Callable[..., Any]] = field(default_factory=dict)
    severity: str = "fault"
    patch: str = ""
    said: Mapping[str, object] = field(default_factory=dict)
    evidence: str = ""
    proved: bool | None = None
    is_local: bool = False
    words: str = ""

    @staticmethod
    def at(operation: Operation) -> Span:
        """The span of an operation: in a helper that many call, the innermost."""
        return operation.span
