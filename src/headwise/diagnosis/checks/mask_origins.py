"""Mask origins: of which input the mask of the keys is made."""

from __future__ import annotations

from headwise.calls import call_role
from headwise.dataflow import LAYERS, Marks, Run, source_of, sources_of
from headwise.diagnosis.suspects import Suspect
from headwise.recording import Operation

__all__ = ["mask_of_queries"]


def mask_of_queries(run: Run, failed: Operation | None) -> Suspect | None:
    """A mask that is laid over the keys and is made of the queries' tokens, which shows where these are not as many.

    Only where the inputs are called queries or keys: two that go side by side may have one mask.
    """
    if failed is None or failed.span is None or run.sizes.get("L") == run.sizes.get("S"):
        return None
    operand_marks = [run.marks_at(tensor) for tensor in failed.inputs]
    queries, keys = _met(failed, operand_marks)
    roles = {number: call_role(name) for name, number in run.sources.items()}
    is_called = any(roles.get(key) == "key" for key in keys) or any(roles.get(query) == "query" for query in queries)
    if not keys or keys & queries or not is_called:
        return None
    for operand, marks in zip(failed.inputs[1:], operand_marks[1:], strict=True):
        if marks is None or marks.kind != "token" or "float" in str(operand.dtype):
            continue
        if sources_of(marks) <= queries and operand.shape[-1] == run.sizes.get("L"):
            return Suspect("mask-of-queries", failed.span, proved=True)
    return None


def _met(failed: Operation, operand_marks: list[Marks | None]) -> tuple[set[int], set[int]]:
    """The inputs of the queries and of the keys that an operation has scores of, or makes some of."""
    first = operand_marks[0] if operand_marks else None
    if failed.last in LAYERS:
        return (sources_of(first), sources_of(operand_marks[1])) if len(operand_marks) > 1 else (set(), set())
    if first is None or first.kind != "pair" or not {"x", "y"} <= first.arrays.keys():
        return set(), set()
    x, y = (set(source_of(first.arrays[name]).unique().tolist()) - {-1} for name in "xy")
    # tokens of keys go along the last axis
    is_turned = bool((first.arrays["x"].diff(dim=-1) != 0).any())
    return (y, x) if is_turned else (x, y)
