"""Input layouts: code for another order of axes, or for as many keys as queries, before it is accused of mixing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from headwise.calls import Plan, Reading, alike, call_role, callee, parameters, read
from headwise.dataflow import AttentionOps, Manner, attentions, operand_marks, run, sources_of
from headwise.diagnosis.checks.head_layout import layout_problems
from headwise.diagnosis.checks.projection_names import KEYS
from headwise.diagnosis.checks.refusals import is_refusal
from headwise.diagnosis.coverage import Missed
from headwise.diagnosis.examination import Examination
from headwise.diagnosis.plans.small_sizes import small
from headwise.diagnosis.plans.user_arguments import as_json
from headwise.recording import Operation

__all__ = ["TURNED", "fails_apart", "is_better", "tells_no_layout", "turned_calls"]

TURNED = "LBD"
HEADS_LAST = "BLHd"
LENGTHS = ("L", "S")
# in such a layout no axis of the output is that of the samples
SAMPLES_UNKNOWN = Missed("doctor.missed.samples_unknown")


def tells_no_layout(call: Mapping[str, Any] | None) -> bool:
    """Whether what a person says of a call leaves open what each axis counts: nothing is said, or numbers alone."""
    if call is None:
        return True
    shapes = [value for value in call.values() if isinstance(value, list)]
    return "_layout" not in call and bool(shapes) and all(type(size) is int for shape in shapes for size in shape)


def turned_calls(exams: Sequence[Examination], target: Any, namespace: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The calls of a target that its first call shows as mixed, in other orders of axes, the richest first: the batch
    second, heads behind tokens. None where its code says which axis is the batch.
    """
    exam = next((each for each in exams if _is_confused(each) or _is_unplaced(each)), None)
    if exam is None or "_layout" in exam.plan.call:
        return
    try:
        reading = read(target, namespace)
    except (TypeError, ValueError, OSError):
        return
    shapes = {name: shape for name, shape in exam.plan.call.items() if isinstance(shape, list)}
    packed = {name: each for name, each in exam.plan.call.items() if _is_packed(each)}
    yield from _batch_second(packed, reading)
    # what may be left out, as a memory of earlier tokens, may have made keys of which no mask is known
    asked = {parameter.name for parameter in parameters(callee(target)) if parameter.default is parameter.empty}
    if packed.keys() - asked:
        yield from _batch_second({name: each for name, each in packed.items() if name in asked}, reading)
    split = {name: each for name, each in shapes.items() if len(each) == len(HEADS_LAST) and each[2] in LENGTHS}
    if split:
        yield {"_layout": HEADS_LAST, **{n: [each[0], each[2], each[1], each[3]] for n, each in split.items()}}


def _is_packed(value: Any) -> bool:
    """Whether an argument is features of tokens, or their numbers in a vocabulary, with the batch first."""
    shape = value if isinstance(value, list) else [*value["_ids"], ""] if _are_ids(value) else []
    return len(shape) == len(TURNED) and shape[0] == "B" and shape[1] in LENGTHS


def _are_ids(value: Any) -> bool:
    return isinstance(value, Mapping) and isinstance(value.get("_ids"), list)


def _turned(value: Any, length: str) -> Any:
    return {**value, "_ids": [length, "B"]} if _are_ids(value) else [length, "B", value[2]]


def _batch_second(shapes: Mapping[str, Any], reading: Reading) -> Iterator[dict[str, Any]]:
    if not shapes or any(reading.is_batch_first(name) for name in shapes) or reading.says_batch_first:
        return
    for keys in ("S", "L"):
        lengths = {name: keys if call_role(name) in KEYS else "L" for name in shapes}
        if keys == "S" and keys not in lengths.values():
            continue
        yield {"_layout": TURNED, **{name: _turned(value, lengths[name]) for name, value in shapes.items()}}


def is_better(others: Sequence[Examination], exams: Sequence[Examination]) -> bool:
    """Whether in another layout samples stay apart, or tokens meet, and nothing is wrong that was not."""
    faults, before = (set().union(*(_faults(each) for each in some)) for some in (others, exams))
    is_told = all(each.examined.get("samples") != SAMPLES_UNKNOWN for each in others)
    return any(exam.is_understood for exam in others) and is_told and faults < before


def _is_unplaced(exam: Examination) -> bool:
    """Whether what meets is not queries and keys of tokens, for which no movement is to blame."""
    return any(suspect.guess == "layout" for suspect in exam.suspects)


def _is_confused(exam: Examination) -> bool:
    """Whether a fault may come of another order of axes than the code was written for."""
    return any(suspect.severity == "fault" and suspect.fault.depends_on_layout for suspect in exam.suspects)


def _faults(exam: Examination) -> set[str]:
    return {suspect.general for suspect in exam.suspects if suspect.severity == "fault"}


def fails_apart(exam: Examination) -> Missed | None:
    """That a call fails by its keys' length alone, at a line that does not refuse it; None: it does not, or queries and
    keys do not meet with as many of both either.
    """
    plan, failure = exam.plan, exam.run().failure
    if failure is None or failure.operation is None or failure.span is None or is_refusal(failure):
        return None
    if _has_triangle(failure.operation):
        # it hides later tokens by a triangle of as many keys as queries: it attends to its own tokens
        return None
    if plan.mask or not {"L", "S"} <= {symbol.name for symbol in plan.symbols}:
        return None
    level = _level(plan)
    result = run(level, Manner(dtype=exam.dtype), sizes=small(level), own=exam.user_files, change=exam.change)
    all_attentions = attentions(result)
    if (
        result.failure is not None
        or not all_attentions
        or any(layout_problems(attention) for attention in all_attentions)
    ):
        return None
    if not any(map(_meets_others, all_attentions)):
        # what it fails for are no keys
        return None
    error = failure.words.rstrip(".")
    call = as_json({name: alike(value) for name, value in plan.call.items()})
    return Missed("doctor.missed.fails_apart", {"line": failure.span.line, "error": error, "call": call})


def _meets_others(attention: AttentionOps) -> bool:
    """Whether keys are, or may be, of another input than the queries."""
    scores = attention.scores
    pair = attention.context.given[:2] if scores is None else operand_marks(scores)
    inputs = [sources_of(marks) for marks in pair]
    # of what is not known nothing is said
    return set() in inputs or inputs[:1] != inputs[1:]


def _has_triangle(operation: Operation) -> bool:
    """Whether an operation takes a square with one value above its diagonal, and another one below."""
    for seen in operation.inputs:
        value, shape = seen.value, seen.shape
        if value is None or len(shape) < 2 or shape[-1] != shape[-2] or shape[-1] < 2 or not value.numel():
            continue
        square = value.reshape(-1, *shape[-2:])[0]
        above = square[torch.ones(shape[-2:], dtype=torch.bool).triu(1)]
        below = square[torch.ones(shape[-2:], dtype=torch.bool).tril(-1)]
        if bool((above == above[0]).all()) and bool((below == below[0]).all()) and bool(above[0] != below[0]):
            return True
    return False


def _level(plan: Plan) -> Plan:
    # last, since L may be made of other sizes
    bound = [replace(symbol, equals="L") for symbol in plan.symbols if symbol.name == "S"]
    return replace(plan, symbols=(*(symbol for symbol in plan.symbols if symbol.name != "S"), *bound))
