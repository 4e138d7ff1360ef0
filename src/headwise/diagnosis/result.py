"""Result: whether attention code is right, and each thing that is not; plain data that JSON carries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from headwise.diagnosis.display import as_html, report
from headwise.diagnosis.faults import KINDS, SEVERITIES
from headwise.source import Edit, Edits

__all__ = ["KINDS", "SCHEMA", "SEVERITIES", "Diagnosis", "Finding"]

SCHEMA = 1


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong, or unusual.

    kind: of the table of faults ("softmax-axis"). severity: "fault", "warning" or "note". line, end_line from 1,
    column from 0, None: not known. source: the line; code: the operation itself. what, why, fix: a sentence each.
    proved: a run in which that alone was put right meets what it should. evidence: what was measured. file: as said.
    patch: lines as they should be written, edits: how they come about; only where that was tried and helps.
    candidates: edits that may help.
    """

    kind: str
    severity: str
    line: int | None
    end_line: int | None
    column: int | None
    source: str
    what: str
    why: str
    fix: str
    proved: bool
    evidence: str
    file: str = ""
    end_column: int | None = None
    code: str = ""
    patch: str = ""
    edits: Edits = ()
    candidates: tuple[Edits, ...] = field(default=(), repr=False, compare=False)

    def __repr__(self) -> str:
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        state = "proved" if self.proved else "not proved"
        return f"<Finding {self.kind}: {self.severity}, {state}, at {where}>"

    def __str__(self) -> str:
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{where}  {self.severity}: {self.kind}. {self.what}"


@dataclass(frozen=True)
class Diagnosis:
    """What the doctor says of a target. verdict: "sound", "faulty" or "not examined"; examined: what was tried, by
    name; reason: what it would need to know where it was not examined; lang: in which language it is told. `str` is a
    report, `to_dict` plain data.
    """

    target: str
    verdict: str
    findings: tuple[Finding, ...]
    examined: Mapping[str, Any] = field(default_factory=dict)
    reason: str = ""
    lang: str = "en"

    def __str__(self) -> str:
        return report(self)

    def __repr__(self) -> str:
        counts = Counter(finding.severity for finding in self.findings)
        counts_text = [f"{counts[name]} {name}{'s' * (counts[name] > 1)}" for name in SEVERITIES if counts[name]]
        return f"<Diagnosis {self.target}: {', '.join([self.verdict, *counts_text])}>"

    def _repr_html_(self) -> str:
        return as_html(self)

    @property
    def faults(self) -> tuple[Finding, ...]:
        """The findings that make it faulty."""
        return tuple(finding for finding in self.findings if finding.severity == "fault")

    def to_dict(self) -> dict[str, Any]:
        """Plain data, of which `from_dict` makes the same diagnosis again."""
        return {
            "schema": SCHEMA, "target": self.target, "verdict": self.verdict,
            "findings": [_plain(finding) for finding in self.findings], "examined": dict(self.examined),
            "reason": self.reason,
        }  # fmt: skip

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], *, lang: str = "en") -> Diagnosis:
        """The diagnosis that `to_dict` was taken of. lang: of its sentences."""
        findings = tuple(
            Finding(**{**finding, "edits": tuple(Edit(**edit) for edit in finding.get("edits", ()))})
            for finding in data["findings"]
        )
        return cls(data["target"], data["verdict"], findings, data["examined"], data.get("reason", ""), lang)


def _plain(finding: Finding) -> dict[str, Any]:
    """A finding as plain data, without what was only thought of."""
    out = asdict(replace(finding, candidates=()))
    del out["candidates"]
    return {**out, "edits": list(out["edits"])}
