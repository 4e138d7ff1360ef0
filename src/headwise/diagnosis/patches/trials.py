"""Trials: patches that were tried: the source with them, loaded and examined again, has lost the fault."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from headwise.diagnosis.coverage import Missed, told
from headwise.diagnosis.faults import fault_of
from headwise.diagnosis.result import Diagnosis, Finding
from headwise.recording import Budget
from headwise.source import Edit, Edits, applied
from headwise.wording import say

__all__ = ["LONG", "SHORT", "Again", "Effort", "by_file", "mended"]

# examines a target again with edits in its files, by what these are called; None: it cannot be loaded so
Again = Callable[[Mapping[str, Sequence[Edit]]], Diagnosis | None]


@dataclass(frozen=True)
class Effort:
    """How much is tried. tries: of the source with patches in it; work: after which none is begun."""

    tries: int
    work: int


# a report does not wait long for patches; a mended file is worth it
SHORT, LONG = Effort(6, 150_000), Effort(40, 1_250_000)


def mended(found: Diagnosis, texts: Mapping[str, str], again: Again, *, effort: Effort, lang: str) -> Diagnosis:
    """A diagnosis whose findings have the patches that help, and which says for which lines not all were tried."""
    budget, tries, chosen = Budget(effort.work), 0, {}
    every = {at: list(each.candidates) for at, each in enumerate(found.findings) if each.file in texts}
    every = {at: each for at, each in every.items() if each}
    together = {at: each[0] for at, each in every.items()}
    if together and not _overlaps(found, together):
        tries += 1
        is_all = _helps(found, [found.findings[at] for at in together], again(_chosen(found, together)))
        chosen = together if is_all else {}
        if not is_all and len(together) == 1:
            # just this has been tried
            every = {at: each[1:] for at, each in every.items()}
    left: set[int] = set()
    # the likeliest of each finding comes before the second of any
    for _, at, edits in sorted((place, at, each) for at, own in every.items() for place, each in enumerate(own)):
        if at in chosen:
            continue
        if tries >= effort.tries or budget.is_over:
            left.add(at)
            continue
        tries += 1
        if _helps(found, [found.findings[at]], again(_chosen(found, {at: edits}))):
            chosen[at] = edits
    findings = [
        _patched(each, chosen[at], texts[each.file], lang) if at in chosen else each
        for at, each in enumerate(found.findings)
    ]
    return replace(found, findings=tuple(findings), examined={**found.examined, **_untried(found, left, effort, lang)})


def _untried(found: Diagnosis, left: Collection[int], effort: Effort, lang: str) -> dict[str, str]:
    """For which lines not all patches were tried, as a part of what was not examined."""
    lines = ", ".join(map(str, sorted({found.findings[at].line or 0 for at in left})))
    key = "doctor.missed.patches_left" if effort.tries < LONG.tries else "doctor.missed.patches_left_at_last"
    return {"patches": told(Missed(key, {"lines": lines}), lang=lang)} if left else {}


def by_file(pairs: Iterable[tuple[Finding, Sequence[Edit]]]) -> dict[str, list[Edit]]:
    """The edits of findings by the files that these are of, each once."""
    out: dict[str, list[Edit]] = {}
    for finding, own in pairs:
        known = out.setdefault(finding.file, [])
        known += [each for each in own if each not in known]
    return out


def _chosen(found: Diagnosis, chosen: Mapping[int, Edits]) -> dict[str, list[Edit]]:
    return by_file((found.findings[at], own) for at, own in chosen.items())


def _overlaps(found: Diagnosis, chosen: Mapping[int, Edits]) -> bool:
    return any(_overlap(own) for own in _chosen(found, chosen).values())


def _overlap(edits: Sequence[Edit]) -> bool:
    ordered = sorted(edits, key=lambda each: (each.line, each.column))
    return any((a.end_line, a.end_column) > (b.line, b.column) for a, b in pairwise(ordered))


def _helps(found: Diagnosis, gone: Sequence[Finding], then: Diagnosis | None) -> bool:
    """Whether findings are gone in a second diagnosis, and no other has come that could be seen before."""
    if then is None or then.verdict == "not examined":
        return False
    before, after = _counted(found.findings), _counted(then.findings)
    new = after - (before - _counted(gone))
    if any(fault_of(each.kind).ends_call for each in gone):
        return not any(fault_of(kind).ends_call or (kind, severity) in before for kind, severity in new)
    return not new


def _counted(findings: Sequence[Finding]) -> Counter[tuple[str, str]]:
    # where a run raised, warnings could not be seen before
    return Counter((each.kind, each.severity) for each in findings if each.severity == "fault")


def _patched(finding: Finding, edits: Edits, text: str, lang: str) -> Finding:
    """A finding with the lines that its patch writes, or takes away where it writes none; what a run could not prove,
    its mended source does.
    """
    before, after = text.split("\n"), applied(text, edits).split("\n")
    lines: list[int] = []
    moved = 0
    for each in sorted(edits, key=_place):
        lines += [each.line + moved + at for at in range(_height(each))]
        moved += each.text.count("\n") - (each.end_line - each.line)
    written = [after[line - 1].strip() for line in dict.fromkeys(lines) if line <= len(after)]
    gone = [line.strip() for each in edits if not each.text for line in before[each.line - 1 : each.end_line - 1]]
    patch = "\n".join(written or [f"- {line}" for line in gone])
    said = say("doctor.patch" if written else "doctor.patch_gone", lang=lang, fix=finding.fix, patch=patch)
    how = "runs" if fault_of(finding.kind).ends_call else "source"
    evidence = finding.evidence if finding.proved else say(f"doctor.evidence.{how}", lang=lang)
    return replace(finding, patch=patch, edits=edits, fix=said, proved=True, evidence=evidence)


def _place(edit: Edit) -> tuple[int, int]:
    return edit.line, edit.column


def _height(edit: Edit) -> int:
    """Over how many lines an edit writes; 0: it takes whole lines away."""
    is_gone = not edit.text and edit.column == edit.end_column == 0
    return 0 if is_gone else edit.text.rstrip().count("\n") + 1
