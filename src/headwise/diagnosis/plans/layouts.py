"""Layouts: whether inputs with the batch second are what the code was written for, before it is accused of mixing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from headwise.diagnosis.examining import Examination
from headwise.recording.calls import call_role, read

__all__ = ["TURNED", "is_better", "turned_calls"]

# what code written for the batch second shows where the batch comes first
CONFUSED = frozenset({
    "batch-length-confused", "sample-leak", "heads-batch-swapped", "split-without-transpose", "merge-without-transpose",
    "softmax-axis", "key-not-transposed",
})  # fmt: skip
TURNED = "LBD"


def turned_calls(exams: Sequence[Examination], target: Any, namespace: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The calls of a target whose samples were mixed, with the batch second, the richest first.

    None where its code says which axis is the batch.
    """
    exam = next((each for each in exams if _faults(each) & CONFUSED), None)
    if exam is None or "_layout" in exam.plan.call:
        return
    try:
        reading = read(target, namespace)
    except (TypeError, ValueError, OSError):
        return
    shapes = {
        name: shape
        for name, shape in exam.plan.call.items()
        if isinstance(shape, list) and len(shape) == len(TURNED) and shape[0] == "B" and shape[1] in ("L", "S")
    }
    if not shapes or any(reading.is_batch_first(name) for name in shapes) or reading.says_batch_first:
        return
    for keys in ("S", "L"):
        lengths = {name: keys if call_role(name) in ("key", "value") else "L" for name in shapes}
        if keys == "S" and keys not in lengths.values():
            continue
        yield {"_layout": TURNED, **{name: [lengths[name], "B", shape[2]] for name, shape in shapes.items()}}


def is_better(other: Sequence[Examination], exams: Sequence[Examination]) -> bool:
    """Whether in another layout samples stay apart, and nothing is wrong that was not."""
    faults, before = (set().union(*(_faults(each) for each in some)) for some in (other, exams))
    return any(each.is_understood for each in other) and faults < before


def _faults(exam: Examination) -> set[str]:
    return {each.kind for each in exam.suspects if each.severity == "fault"}
