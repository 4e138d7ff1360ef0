"""Token tables: the tables of embeddings in which compared tokens are looked up, and what is padding in these."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from headwise.calls import evaluated
from headwise.dataflow import Run, attentions, find_pattern
from headwise.diagnosis.checks.padding import changed_tokens, padded
from headwise.diagnosis.checks.weight_sums import TOLERANCE
from headwise.diagnosis.distance import distance
from headwise.diagnosis.examination import Examination
from headwise.diagnosis.padding_tokens import Padding, compared_with, is_called_padding, meets_scores, paddings
from headwise.diagnosis.suspects import Suspect

__all__ = ["table_paddings", "table_suspects"]

# what leaves whole numbers as they are
CASTS = frozenset({"to", "long", "int", "type", "cpu", "contiguous", "clone", "detach"})


def table_suspects(exam: Examination, free: Run) -> list[Suspect]:
    """The comparison that hides as padding another number than is padding in the table of the same tokens.

    That a special token is hidden may be meant, so that the words must say that it is padding, of a number that has no
    name; that the table's padding is seen is proved by what it changes in the output. Numbers that only the plan of the
    call chose say nothing.
    """
    # of an object that is built, the number may be that of who built it
    for padding in paddings(free) if isinstance(free.plan.target, type) else ():
        tables = table_paddings(free, padding)
        number = next(iter(tables)) if len(tables) == 1 else None
        if number is None or number == padding.number or not meets_scores(free, padding.entry):
            continue
        source = padding.entry.operation.span.source or ""
        is_literal = all(isinstance(node, ast.Constant) for node in compared_with(source))
        if not is_literal or not is_called_padding(padding.entry, padding.name):
            continue
        if _may_choose(free.plan.init, free.sizes, {number, padding.number}):
            continue
        error = _change_by(exam, free, padding, number)
        if error > TOLERANCE:
            values = {"was": padding.number, "wanted": number, "how": "trimmed"}
            return [
                Suspect("padding-of-table", padding.entry.span, values=values, proved=True, evidence=f"{error:.4g}")
            ]
    return []


def table_paddings(run: Run, padding: Padding) -> set[int | None]:
    """The padding_idx of each table in which the very tokens that are compared are looked up; None: it has none."""
    compared = _unmoved(run, padding.entry.at, padding.entry.inputs[0].number)
    return {
        entry.options.get("padding_idx")
        for entry in run.seen
        if entry.last == "embedding" and entry.inputs and _unmoved(run, entry.at, entry.inputs[0].number) == compared
    }


def _unmoved(run: Run, before: int, number: int) -> int:
    """The number of the tensor that another one was made of by moving its entries, or by a cast."""
    while True:
        maker = next((op for op in reversed(run.makers.get(number, ())) if op.at < before), None)
        if maker is None or not maker.inputs or not (maker.is_movement or maker.last in CASTS):
            return number
        before, number = maker.at, maker.inputs[0].number


def _may_choose(init: Mapping[str, Any], sizes: Mapping[str, int], numbers: set[int]) -> bool:
    """Whether any of some numbers may be one with which the plan builds the class."""
    for value in init.values():
        if isinstance(value, str):
            try:
                value = evaluated(value, sizes)
            except (KeyError, SyntaxError, TypeError, ValueError):
                continue
        if isinstance(value, int) and not isinstance(value, bool):
            if value in numbers:
                return True
        elif not isinstance(value, bool | float | None):
            # a config may hold any number
            return True
    return False


def _change_by(exam: Examination, free: Run, padding: Padding, number: int) -> float:
    """By how much a sample's output changes where tokens of a number, which is padding in their table, follow it.

    0: keys of that number are not attended to, or those of the other number are too.
    """
    tokens = free.given[padding.name]
    real = tokens[(tokens != number) & (tokens != padding.number)]
    if not real.numel():
        return 0.0
    real_token = int(real.min())

    def run_with(last: int | None, length: int | None = None) -> Run:
        def way(tokens: Tensor) -> Tensor:
            out = tokens.masked_fill((tokens == number) | (tokens == padding.number), real_token)[
                :, :length
            ].contiguous()
            return out if last is None else padded(replace(padding, number=last))(out)

        run: Run = exam.run(change=changed_tokens(exam, replace(padding, token=real_token), way))
        return run

    bare, padded_run, hidden = run_with(None), run_with(number), run_with(padding.number)
    if any(run.failure is not None for run in (bare, padded_run, hidden)):
        return 0.0
    pads = padding.laid(padded_run.given[padding.name]) == number
    count = int((~pads[-1]).sum())
    if not _shows(bare, padded_run, padding.name, pads) or _shows(bare, hidden, padding.name, pads):
        return 0.0
    alone = run_with(None, count)
    if alone.failure is not None or alone.output is None or padded_run.output is None:
        return 0.0
    result = padded_run.output[-1]
    if padded_run.output.shape[:2] == pads.shape:
        result = result[:count]
    error = distance(result, alone.output[-1]) if result.shape == alone.output[-1].shape else 0.0
    return error if error < float("inf") else 0.0


def _shows(bare: Run, run: Run, name: str, pads: Tensor) -> bool:
    """Whether an attention to the tokens of an argument attends to padding just as to the tokens in its place."""
    for first, second in zip(attentions(bare), attentions(run), strict=False):
        before, after = find_pattern(first), find_pattern(second)
        if before is None or after is None or before.weights.shape != after.weights.shape:
            continue
        if bool((after.source != run.sources[name]).any()) or int(after.column.max()) >= pads.shape[1]:
            continue
        at_pads = pads[after.sample, after.column]
        if bool(at_pads.any()) and torch.equal(after.visible[at_pads], before.visible[at_pads]):
            return bool(after.visible[at_pads].any())
    return False
