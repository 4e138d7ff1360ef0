"""Mending: patches that were tried: the source with them, loaded and examined again, has lost the fault."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from headwise.diagnosis.diagnosis import Diagnosis, Finding
from headwise.diagnosis.patches.sources import Edit, Edits, applied
from headwise.wording import say

__all__ = ["ENDING", "Again", "mended"]

# what ends a call before the rest of it is seen
ENDING = frozenset({"undefined-name", "wrong-attribute", "view-noncontiguous", "raises", "mask-raises"})

# examines a target again with edits in its files, by what these are called; None: it cannot be loaded so
Again = Callable[[Mapping[str, Sequence[Edit]]], Diagnosis | None]


def mended(found: Diagnosis, texts: Mapping[str, str], again: Again, *, seconds: float, lang: str) -> Diagnosis:
    """A diagnosis whose findings have the patches that help. seconds: after so many no more are tried."""
    end = time.process_time() + seconds
    chosen = _together(found, texts, again)
    if not chosen:
        for at, each in enumerate(found.findings):
            for edits in each.candidates if each.file in texts else ():
                if time.process_time() > end:
                    break
                if _helps(found, [each], again({each.file: edits})):
                    chosen[at] = edits
                    break
    findings = [
        _patched(each, chosen[at], texts[each.file], lang) if at in chosen else each
        for at, each in enumerate(found.findings)
    ]
    return replace(found, findings=tuple(findings))


def _together(found: Diagnosis, texts: Mapping[str, str], again: Again) -> dict[int, Edits]:
    """The likeliest patch of every finding, where all of them at once help; {}: they do not."""
    chosen: dict[int, Edits] = {}
    for at, each in enumerate(found.findings):
        if each.candidates and each.file in texts:
            chosen[at] = each.candidates[0]
    if not chosen:
        return {}
    edits: dict[str, list[Edit]] = {}
    for at, own in chosen.items():
        known = edits.setdefault(found.findings[at].file, [])
        known += [each for each in own if each not in known]
    if any(_overlap(own) for own in edits.values()):
        return {}
    return chosen if _helps(found, [found.findings[at] for at in chosen], again(edits)) else {}


def _overlap(edits: Sequence[Edit]) -> bool:
    ordered = sorted(edits, key=lambda each: (each.line, each.column))
    return any((a.end_line, a.end_column) > (b.line, b.column) for a, b in pairwise(ordered))


def _helps(found: Diagnosis, gone: Sequence[Finding], then: Diagnosis | None) -> bool:
    """Whether findings are gone in a second diagnosis, and no other has come that could be seen before."""
    if then is None or then.verdict == "not examined":
        return False
    before, after = _counted(found.findings), _counted(then.findings)
    new = after - (before - _counted(gone))
    if any(each.kind in ENDING for each in gone):
        return not any(kind in ENDING or (kind, severity) in before for kind, severity in new)
    return not new


def _counted(findings: Sequence[Finding]) -> Counter[tuple[str, str]]:
    # where a run raised, warnings could not be seen before
    return Counter((each.kind, each.severity) for each in findings if each.severity == "fault")


def _patched(finding: Finding, edits: Edits, text: str, lang: str) -> Finding:
    """A finding with the lines that its patch writes; what a run could not prove, its mended source does."""
    after = applied(text, edits).split("\n")
    lines = dict.fromkeys(each.line + at for each in sorted(edits, key=_place) for at in range(_height(each)))
    patch = "\n".join(after[line - 1].strip() for line in lines if line <= len(after))
    said = say("doctor.patch", lang=lang, fix=finding.fix, patch=patch)
    how = "runs" if finding.kind in ENDING else "source"
    evidence = finding.evidence if finding.proved else say(f"doctor.evidence.{how}", lang=lang)
    return replace(finding, patch=patch, edits=edits, fix=said, proved=True, evidence=evidence)


def _place(edit: Edit) -> tuple[int, int]:
    return edit.line, edit.column


def _height(edit: Edit) -> int:
    return edit.text.rstrip("\n").count("\n") + 1
