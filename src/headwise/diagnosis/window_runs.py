"""Window runs: what shows in sequences of whole windows, and in longer ones of several blocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from headwise.dataflow import Run, attentions
from headwise.diagnosis.checks.causal import order_suspects
from headwise.diagnosis.checks.causal_intent import is_under_square, wants_causal
from headwise.diagnosis.checks.visible_pairs import pattern_of
from headwise.diagnosis.checks.wrapped_windows import wrapped_windows
from headwise.diagnosis.examination import Examination
from headwise.diagnosis.repair import Repair
from headwise.diagnosis.suspects import Suspect

__all__ = ["hides_further", "order_of_windows", "wrapped"]

# as many tokens are several blocks of them
LONGER = 67


def order_of_windows(exam: Examination, free: Run) -> list[Suspect]:
    """What is wrong with the order in whole windows, of a class that fills up its last one."""
    if (
        "L" not in free.sizes
        or not wants_causal(free)
        or any(pattern_of(each) is not None for each in attentions(free))
    ):
        return []
    for whole in _in_windows(exam, free, 2):
        if suspects := order_suspects(whole):
            # what puts these sizes right does not fit others
            return [replace(suspect, repair=Repair(is_local=True)) for suspect in suspects]
    return []


def wrapped(exam: Examination, free: Run) -> list[Suspect]:
    """Windows whose first and last tokens see each other; where the last window is filled up, in three whole ones."""
    if (suspects := wrapped_windows(free)) or not any(entry.last == "roll" for entry in free.seen):
        return suspects
    found = (wrapped_windows(whole) for whole in _in_windows(exam, free, 3))
    return [replace(suspect, repair=Repair(is_local=True)) for suspect in next(filter(None, found), [])]


def _in_windows(exam: Examination, free: Run, count: int) -> Iterator[Run]:
    """Runs in which the tokens are so many whole windows, of each number that may be the size of one."""
    sizes = {free.sizes[each.name] for each in exam.free.symbols if each.meaning == "parameter"}
    for size in sizes if "L" in free.sizes else ():
        whole = exam.run(plan=exam.free, sizes={**free.sizes, "L": count * size})
        if whole.failure is None:
            yield whole


def hides_further(exam: Examination, free: Run) -> bool:
    """Whether a sequence in which all see all hides later tokens where it is longer, in blocks that see the same."""
    if "L" not in free.sizes or not any(is_under_square(attention) for attention in attentions(free)):
        return False
    longer = exam.run(plan=exam.free, sizes={**free.sizes, "L": LONGER})
    patterns = [] if longer.failure is not None else [pattern_of(attention) for attention in attentions(longer)]
    steps = [len(pattern.unique(dim=0)) for pattern in patterns if pattern is not None]
    return any(1 < count <= LONGER // 2 for count in steps)
