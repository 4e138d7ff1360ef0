"""Suspects: what the checks of a run hand to the examination: a kind, a place, and what would put it right."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headwise.diagnosis.faults import FAULTS
from headwise.diagnosis.faults.fault import Fault
from headwise.diagnosis.repair import Repair
from headwise.source import Span

__all__ = ["Suspect"]


@dataclass(frozen=True)
class Suspect:
    """One thing that is wrong, or odd. kind: of the table of faults. span: where. severity: "": that of its kind.

    values: of its sentences. home: where what the operation takes was made wrong, None: the operation is wrong.
    guess: what of the call that shows it is nobody's word but ours, "layout", "axes" (too few), "sizes",
    "cache" or "rotation"; "": it shows however the code is called. is_of_tokens: of a mask made of token numbers.
    """

    kind: str
    span: Span | None
    repair: Repair = field(default_factory=Repair)
    severity: str = ""
    values: Mapping[str, object] = field(default_factory=dict)
    evidence: str = ""
    proved: bool | None = None
    home: Span | None = None
    guess: str = ""
    is_of_tokens: bool = False

    def __post_init__(self) -> None:
        if not self.severity:
            object.__setattr__(self, "severity", self.fault.severity)

    @property
    def fault(self) -> Fault:
        """The row of its kind."""
        return FAULTS[self.kind]

    @property
    def general(self) -> str:
        """The kind of which its own is a case, or its own."""
        return self.fault.general or self.kind
