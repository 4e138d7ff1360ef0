"""Segment ends: whether the last token of a segment, as words say that a flag marks it, is one of its own segment."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from headwise.calls import Plan
from headwise.dataflow import MarkedOp, Run, attentions, downstream, find_pattern
from headwise.diagnosis.checks.head_split import spoken
from headwise.diagnosis.checks.stated_uses import sentences
from headwise.diagnosis.padding_tokens import token_axis
from headwise.diagnosis.patches.movements import without_own
from headwise.diagnosis.repair import Change, Repair
from headwise.diagnosis.suspects import Suspect

__all__ = ["segment_ends"]

# what words say of an argument: from its name at the beginning of an entry to the end of the sentence
ENTRY = r"(?:^|[;\n])\s*(?:[:@]param\s+)?[`*-]*\s*{name}\b([^.;]*)"
FURTHER = re.compile(r"\n\s*(?:[:@]param\s+)?[`*-]*\w+[`*]*\s*[:(]")
# of a flag at the last token, and of one at the first
LAST = re.compile(r"\blast\b|\bended\b|\bends\b|\breset (?:after|then)\b|最后|结束", re.IGNORECASE)
NEXT = re.compile(r"\b(?:first|begins?|starts?|opens|previous|before)\b|开始|之前|第一", re.IGNORECASE)
# that a token is the last of what it stands in
CLOSES = re.compile(
    r"\b(?:eos|end[- ]of[- ]\w+|separators?)(?: tokens?)? (?:is|as|being) (?:the|its) last\b"
    r"|\b(?:eos|end[- ]of[- ]\w+|separators?)(?: tokens?)? (?:closes|ends) (?:an?|the|each|every|its)\b"
    r"|\b(?:closed|ended|terminated) by (?:an?|the|its) (?:eos|end[- ]of|separator)",
    re.IGNORECASE,
)
# fewer tokens have none before and after one
FEWEST = 3


def segment_ends(run: Run, rerun: Callable[..., Run]) -> list[Suspect]:
    """A running count of flags that counts the token which a flag marks to the segment after it."""
    for name, value in run.named.items():
        axis = token_axis(run.plan, name)
        if value.ndim != 2 or not _marks_last(run.plan, name) or value.shape[axis] < FEWEST:
            continue
        place = value.shape[axis] // 2
        flagged = _flagged(name, axis, place, _numbers(run, value))
        ended = rerun(more_change=flagged)
        count = _count_of(ended, name)
        if count is None or not _is_with_next(ended, place):
            continue
        stand_ins = {count.site: _exclusive(count.function)}
        mended = rerun(stand_ins, more_change=flagged)
        if mended.failure is None and attentions(mended) and not _is_with_next(mended, place):
            repair = Repair(stand_ins, rewriting=without_own)
            return [Suspect("segment-end-moved", count.span, repair, values={"name": name}, proved=True)]
    return []


def _marks_last(plan: Plan, name: str) -> bool:
    """Whether the words about an argument say that it marks the last token of a segment, and not the first, or those
    about the token numbers of a target that one of these does.
    """
    text = "\n".join(spoken(plan.target if isinstance(plan.target, type) else type(plan.target)))
    declared = plan.call.get(name)
    if isinstance(declared, Mapping) and "_ids" in declared and "dtype" not in declared:
        return any(CLOSES.search(sentence) and not NEXT.search(sentence) for sentence in sentences(text))
    entries = (FURTHER.split(match[1])[0] for match in re.finditer(ENTRY.format(name=re.escape(name)), text))
    return any(LAST.search(entry) and not NEXT.search(entry) for entry in entries)


def _numbers(run: Run, tokens: Tensor) -> tuple[int, int]:
    """The number that token numbers are compared with on the way to a running count, and one that is compared with
    none; 1 and 0: they are flags.
    """
    compared = {entry.args[1]: entry for entry in reversed(run.seen)
                if entry.name in ("==", "eq", "!=", "ne") and len(entry.args) > 1 and type(entry.args[1]) is int
                and any(each is tokens for each in entry.tensors)}  # fmt: skip
    counted = [number for number, entry in compared.items()
               if any(later.last == "cumsum" for later in downstream(run, entry))]  # fmt: skip
    plain = [number for number in tokens.unique().tolist() if number not in compared]
    return (counted[0], int(plain[0])) if counted and plain else (1, 0)


def _flagged(name: str, axis: int, place: int, numbers: tuple[int, int]) -> Change:
    """One flag in each sample. numbers: of a flag, and of all other tokens."""

    def change(_: Any, options: dict[str, Any]) -> None:
        value = options.get(name)
        if isinstance(value, Tensor):
            flags = torch.full_like(value, numbers[1])
            flags.select(axis, place).fill_(numbers[0])
            options[name] = flags

    return change


def _count_of(run: Run, name: str) -> MarkedOp | None:
    """The running count that is made of an argument; None: none is."""
    tensor = run.named.get(name)
    numbers = {operand.number for entry in run.seen
               for operand, value in zip(entry.inputs, entry.tensors, strict=False) if value is tensor}  # fmt: skip
    for entry in run.seen:
        if numbers & entry.taken:
            if entry.last == "cumsum":
                return entry
            numbers |= entry.results
    return None


def _is_with_next(run: Run, place: int) -> bool:
    """Whether the token of a flag sees none before it, the next one sees it, and those before it see each other."""
    for attention in attentions(run) if run.failure is None else ():
        sight = find_pattern(attention)
        if sight is None or int(sight.row.max()) <= place:
            continue

        def sees(query: int, key: int, sight: Any = sight) -> bool:
            pairs = (sight.row == query) & (sight.column == key)
            return bool(pairs.any()) and bool(sight.visible[pairs].all())

        if sees(place + 1, place) and not sees(place, place - 1) and sees(place - 1, max(0, place - 2)):
            return True
    return False


def _exclusive(function: Callable[..., Any]) -> Callable[..., Any]:
    """A running sum without the entry itself, which may be true or false."""
    return lambda x, *args, **options: function(x, *args, **options) - x.long()
