"""Compressed keys: whether keys are fewer than tokens, each made of several."""

from __future__ import annotations

from headwise.dataflow import Run
from headwise.recording import Operation

__all__ = ["is_condensed"]


def is_condensed(done: Run, operation: Operation | None) -> bool:
    """Whether keys are made of several tokens each, so that nobody says how long a mask of theirs is."""
    lengths = {done.sizes.get(name) for name in "LS"}
    scores = [each for each in (operation.inputs if operation is not None else ()) if each.number in done.marks]
    if not scores or any(each.shape and each.shape[-1] in lengths for each in scores):
        return False
    arrays = done.marks[scores[0].number].arrays
    # heads that took the place of keys are all of one token
    return not arrays or any(bool((arrays[name].diff(dim=-1) != 0).all()) for name in "xy" if name in arrays)
