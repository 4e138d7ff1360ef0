"""Joined streams: whether a joint sequence of several inputs is split where these were concatenated."""

from __future__ import annotations

from headwise.dataflow import Marks, Run
from headwise.diagnosis.suspects import Suspect
from headwise.recording import tensors

__all__ = ["swapped_streams"]

Tokens = frozenset[int]


def swapped_streams(run: Run) -> list[Suspect]:
    """What splits a joint sequence into parts of the lengths of the inputs that it was joined of, which hold the tokens
    of others.
    """
    inputs = {_tokens(marks) for name, marks in run.argument_marks.items() if run.named[name].is_floating_point()}
    parts = [_tokens(run.marks_of_result(result)) for result in tensors(run.record.result)]
    joint = frozenset[int]().union(*parts)
    streams = {stream for stream in inputs if stream & joint}
    is_whole = sum(map(len, parts)) == len(joint) == sum(map(len, streams)) and joint == joint.union(*streams)
    is_of_lengths = sorted(map(len, parts)) == sorted(map(len, streams))
    if len(streams) < 2 or not is_whole or not is_of_lengths or set(parts) == streams:
        return []
    for entry in run.seen:
        before, after = ({_tokens(marks) for marks in each} for each in (entry.given, entry.output_marks))
        if entry.is_movement and joint in before and after & {*parts} - streams:
            return [Suspect("streams-swapped", entry.span, proved=True)]
    return []


def _tokens(marks: Marks | None) -> Tokens:
    """The tokens that a tensor holds; empty: they are not known."""
    if marks is None or marks.kind != "token":
        return frozenset()
    numbers = frozenset(marks.arrays["t"].unique().tolist())
    return frozenset() if min(numbers, default=-1) < 0 else numbers
