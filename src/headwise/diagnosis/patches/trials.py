"""Trials: patches that were tried: the source with them has lost the fault; and what stands behind failing calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from headwise.diagnosis.check_runner import CheckRunner, failures_of
from headwise.diagnosis.coverage import Missed, as_plain
from headwise.diagnosis.faults import fault_of
from headwise.diagnosis.faults.fault import FAULT, WARNING
from headwise.diagnosis.result import Diagnosis, Finding
from headwise.recording import Budget
from headwise.source import Edit, Edits, applied
from headwise.wording import say

__all__ = ["Again", "Effort", "LONG", "SHORT", "mended", "uncovered", "with_patches"]

# examines a target again with edits in its files, by what these are called; None: it cannot be loaded so
Again = Callable[[Mapping[str, Sequence[Edit]]], Diagnosis | None]


@dataclass(frozen=True)
class Effort:
    """How much is tried. tries: of the source with patches in it; work: after which none is begun."""

    tries: int
    work: int


# a report does not wait long for patches; a mended file is worth it
SHORT, LONG = Effort(6, 150_000), Effort(40, 1_250_000)


def with_patches(
    diagnosis: Diagnosis, texts: Mapping[str, str], again: Again, *, effort: Effort, lang: str
) -> Diagnosis:
    """A diagnosis whose findings have the patches that help, and what else shows once failing calls are mended."""
    checks = CheckRunner()
    for improve in (mended, uncovered):
        diagnosis = checks("patches", diagnosis, improve, diagnosis, texts, again, effort=effort, lang=lang)
    return replace(diagnosis, examined={**diagnosis.examined, **failures_of([checks], lang)})


def mended(diagnosis: Diagnosis, texts: Mapping[str, str], again: Again, *, effort: Effort, lang: str) -> Diagnosis:
    """A diagnosis whose findings have the patches that help, and which says for which lines not all were tried."""
    budget, tries, chosen = Budget(effort.work), 0, {}
    every = {at: list(each.candidates) for at, each in enumerate(diagnosis.findings) if each.file in texts}
    every = {at: each for at, each in every.items() if each}
    together = {at: each[0] for at, each in every.items()}
    if together and not _overlaps(diagnosis, together):
        tries += 1
        is_all = _helps(diagnosis, [diagnosis.findings[at] for at in together], again(_chosen(diagnosis, together)))
        chosen = together if is_all else {}
        if not is_all and len(together) == 1:
            # just this has been tried
            every = {at: each[1:] for at, each in every.items()}
    left: set[int] = set()
    # the likeliest of each finding comes before the second of any
    for _, at, edits in sorted((place, at, each) for at, value in every.items() for place, each in enumerate(value)):
        if at in chosen:
            continue
        if tries >= effort.tries or budget.is_over:
            left.add(at)
            continue
        tries += 1
        if _helps(diagnosis, [diagnosis.findings[at]], again(_chosen(diagnosis, {at: edits}))):
            chosen[at] = edits
    findings = [
        _patched(finding, chosen[at], texts[finding.file], lang) if at in chosen else finding
        for at, finding in enumerate(diagnosis.findings)
    ]
    return replace(
        diagnosis, findings=tuple(findings), examined={**diagnosis.examined, **_untried(diagnosis, left, effort, lang)}
    )


def _untried(diagnosis: Diagnosis, left: Collection[int], effort: Effort, lang: str) -> dict[str, str]:
    """For which lines not all patches were tried, as a part of what was not examined."""
    lines = ", ".join(map(str, sorted({diagnosis.findings[at].line or 0 for at in left})))
    key = "doctor.missed.patches_left" if effort.tries < LONG.tries else "doctor.missed.patches_left_at_last"
    return {"patches": as_plain(Missed(key, {"lines": lines}), lang=lang)} if left else {}


def _by_file(pairs: Iterable[tuple[Finding, Sequence[Edit]]]) -> dict[str, list[Edit]]:
    """The edits of findings by the files that these are of, each once."""
    out: dict[str, list[Edit]] = {}
    for finding, edits in pairs:
        file_edits = out.setdefault(finding.file, [])
        file_edits += [edit for edit in edits if edit not in file_edits]
    return out


def _chosen(diagnosis: Diagnosis, chosen: Mapping[int, Edits]) -> dict[str, list[Edit]]:
    return _by_file((diagnosis.findings[at], value) for at, value in chosen.items())


def _overlaps(diagnosis: Diagnosis, chosen: Mapping[int, Edits]) -> bool:
    return any(_overlap(edits) for edits in _chosen(diagnosis, chosen).values())


def _overlap(edits: Sequence[Edit]) -> bool:
    ordered = sorted(edits, key=lambda edit: (edit.line, edit.column))
    return any((a.end_line, a.end_column) > (b.line, b.column) for a, b in pairwise(ordered))


def _helps(diagnosis: Diagnosis, gone: Sequence[Finding], renewed: Diagnosis | None) -> bool:
    """Whether findings are gone in a second diagnosis, and no other has come that could be seen before."""
    if renewed is None or renewed.verdict == "not examined":
        return False
    before, after = _counted(diagnosis.findings), _counted(renewed.findings)
    new = after - (before - _counted(gone))
    if any(fault_of(each.kind).ends_call for each in gone):
        return not any(fault_of(kind).ends_call or (kind, severity) in before for kind, severity in new)
    return not new


def _counted(findings: Sequence[Finding]) -> Counter[tuple[str, str]]:
    # where a run raised, warnings could not be seen before; a call that raises is none of a right patch
    return Counter(
        (finding.kind, finding.severity)
        for finding in findings
        if finding.severity == FAULT or (finding.severity == WARNING and fault_of(finding.kind).engine == "constraint")
    )


def _patched(finding: Finding, edits: Edits, text: str, lang: str) -> Finding:
    """A finding with the lines that its patch writes, or takes away where it writes none; what a run could not prove,
    its mended source does.
    """
    before, after = text.split("\n"), applied(text, edits).split("\n")
    lines: list[int] = []
    moved = 0
    for edit in sorted(edits, key=_place):
        lines += [edit.line + moved + at for at in range(_height(edit))]
        moved += edit.text.count("\n") - (edit.end_line - edit.line)
    written = [after[line - 1].strip() for line in dict.fromkeys(lines) if line <= len(after)]
    gone = [line.strip() for each in edits if not each.text for line in before[each.line - 1 : each.end_line - 1]]
    patch = "\n".join(written or [f"- {line}" for line in gone])
    fix = say("doctor.patch" if written else "doctor.patch_gone", lang=lang, fix=finding.fix, patch=patch)
    how = "runs" if fault_of(finding.kind).ends_call else "source"
    evidence = finding.evidence if finding.proved else say(f"doctor.evidence.{how}", lang=lang)
    return replace(finding, patch=patch, edits=edits, fix=fix, proved=True, evidence=evidence)


def _place(edit: Edit) -> tuple[int, int]:
    return edit.line, edit.column


def _height(edit: Edit) -> int:
    """Over how many lines an edit writes; 0: it takes whole lines away."""
    is_gone = not edit.text and edit.column == edit.end_column == 0
    return 0 if is_gone else edit.text.rstrip().count("\n") + 1


def uncovered(diagnosis: Diagnosis, texts: Mapping[str, str], again: Again, *, effort: Effort, lang: str) -> Diagnosis:
    """A diagnosis with what its target does wrong once the calls that fail are mended. effort: of trying patches."""
    ends = [fault for fault in diagnosis.faults if fault_of(fault.kind).ends_call and fault.edits]
    edits = _by_file((each, each.edits) for each in ends)
    repeated = again(edits) if ends else None
    if repeated is None or repeated.verdict == "not examined":
        return diagnosis
    after = {file: applied(text, edits.get(file, ())) for file, text in texts.items()}

    def further(more: Mapping[str, Sequence[Edit]]) -> Diagnosis | None:
        back = {file: [_back(each, edits.get(file, ())) for each in value] for file, value in more.items()}
        if any(_lines(value) & _lines(edits.get(file, ())) for file, value in back.items()):
            return None
        files = {*edits, *back}
        return again({file: (*edits.get(file, ()), *back.get(file, ())) for file in files})

    repeated = mended(repeated, after, further, effort=effort, lang=lang)
    new = [_at_home(finding, edits.get(finding.file, ())) for finding in repeated.findings]
    kept = tuple(each for each in new if not _is_among(each, ends))
    return replace(diagnosis, findings=(*ends, *kept), examined=repeated.examined)


def _at_home(finding: Finding, edits: Sequence[Edit]) -> Finding:
    """A finding of the mended source at its lines in the source as it is."""
    if finding.line is None or finding.end_line is None:
        return finding
    end = finding.end_line - _shift(finding.end_line, edits)
    edits_back = tuple(_back(edit, edits) for edit in finding.edits)
    return replace(finding, line=finding.line - _shift(finding.line, edits), end_line=end, edits=edits_back)


def _back(edit: Edit, edits: Sequence[Edit]) -> Edit:
    """An edit of the mended source as one of the source as it is."""
    return replace(
        edit, line=edit.line - _shift(edit.line, edits), end_line=edit.end_line - _shift(edit.end_line, edits)
    )


def _shift(line: int, edits: Sequence[Edit]) -> int:
    """How many lines edits put before a line of what they gave."""
    out = 0
    for change in sorted(edits, key=lambda edit: edit.line):
        if change.line + out < line:
            out += change.text.count("\n") - (change.end_line - change.line)
    return out


def _lines(edits: Sequence[Edit]) -> set[int]:
    return {line for edit in edits for line in range(edit.line, edit.end_line + 1)}


def _is_among(finding: Finding, others: Sequence[Finding]) -> bool:
    return any((each.kind, each.file, each.line) == (finding.kind, finding.file, finding.line) for each in others)
