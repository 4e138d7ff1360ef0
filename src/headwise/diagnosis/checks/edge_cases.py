"""Edge cases: rows that may see nothing, and half precision."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from headwise.calls import Plan
from headwise.dataflow import AttentionOps, Run, attentions
from headwise.diagnosis.checks.empty_rows import failing_guard, without_nan
from headwise.diagnosis.checks.stated_uses import is_for_halves
from headwise.diagnosis.coverage import Missed, Tried
from headwise.diagnosis.faults import FAULT
from headwise.diagnosis.repair import Repair
from headwise.diagnosis.suspects import Suspect
from headwise.recording import site_of
from headwise.source import Span

__all__ = ["edge_suspects", "half_suspects"]

# scores of this size are usual in trained models; inputs are not made larger than this
SCORES, LARGEST = 20.0, 200.0
# a score beyond this is one that a mask put there
HIDDEN = 5000.0


def edge_suspects(plan: Plan, rerun: Callable[..., Run], as_written: Callable[..., Run]) -> list[Suspect]:
    """What rows without keys and half precision show in a plan with a mask. as_written: a run as the code stands."""
    declared = plan.call.get("_mask")
    if not isinstance(declared, Mapping):
        return []
    out = []
    means, name = str(declared["means"]), str(declared["argument"])

    def change(_: Any, options: dict[str, Any]) -> None:
        mask = options.get(name)
        if isinstance(mask, Tensor):
            closed = {"attend": 0.0, "blocked": 1.0, "lengths": 0.0}.get(means, float("-inf"))
            options[name] = torch.full_like(mask, closed)

    run = rerun(plan=plan, more_change=change)
    all_attentions = attentions(run)
    if run.failure is None and run.output is not None and bool(run.output.isnan().any()) and all_attentions:
        entry = all_attentions[0].softmax or all_attentions[0].context
        stand_ins = {entry.site: without_nan(entry.function)}
        values = {"how": "law"}
        out.append(
            Suspect("empty-row-spreads", entry.span, Repair(stand_ins), values=values, proved=True, evidence="law")
            if failing_guard(run)
            else Suspect("mask-empty-row", entry.span, Repair(stand_ins))
        )
    # what puts a fill right may hide that its number is too large
    halves = [_in_half(plan, way) for way in (rerun, as_written)]
    failures = [half.failure for half in halves if half is not None]
    failure = next((each for each in failures if each is not None and "overflow" in str(each.error)), None)
    if failure is not None and "overflow" in str(failure.error):
        error = f"float16 → {type(failure.error).__name__}: {failure.error}"
        operation = failure.operation
        stand_ins = {} if operation is None else {site_of(operation): _within_range(operation.function)}
        out.append(
            Suspect(
                "mask-half-overflow",
                failure.span,
                Repair(stand_ins),
                values={"was": _too_large(failure.span), "error": error},
                severity=FAULT if is_for_halves(run.plan.target) else "",
            )
        )
    return out


def half_suspects(plan: Plan, run: Run, rerun: Callable[..., Run]) -> tuple[list[Suspect], Tried]:
    """Where half precision overflows on inputs for which scores are as large as trained ones; and what was tried.

    run: a run of the plan.
    """
    most = max((_largest(attention) for attention in attentions(run)), default=0.0)
    # where torch keeps the scores, the inputs are as they are
    grow = min((SCORES / most) ** 0.5, LARGEST) if most > 0 else 1.0

    def change(_: Any, options: dict[str, Any]) -> None:
        for name, value in options.items():
            if name in run.argument_marks and isinstance(value, Tensor) and value.is_floating_point():
                options[name] = value * grow

    wide, half = rerun(plan=plan, more_change=change), _in_half(plan, rerun, more_change=change)
    if half is None or half.failure is not None or half.output is None:
        return [], Missed("doctor.missed.no_half")
    if half.output.isfinite().all() or wide.output is None or not wide.output.isfinite().all():
        return [], True
    for entry, op in zip(half.seen, wide.seen, strict=False):
        pairs = zip(entry.outputs, op.outputs, strict=False)
        if any(
            a.value is not None and b.value is not None and bool((a.value.isfinite() != b.value.isfinite()).any())
            for a, b in pairs
        ):
            return [Suspect("half-overflow", entry.span, proved=True)], True
    return [], True


def _too_large(span: Span | None) -> str:
    """The number, as it is written, that float16 cannot hold; what stands there, where it is not written out."""
    source = "" if span is None else span.source
    for match in re.finditer(r"-?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", source):
        if abs(float(match[0])) > torch.finfo(torch.float16).max:
            return match[0]
    return source.partition("\n")[0]


def _largest(attention: AttentionOps) -> float:
    """The largest score that a softmax was given."""
    entry = attention.softmax or next((op for op in attention.path if op.last in ("exp", "exp_")), None)
    value = None if entry is None else entry.inputs[0].value
    if value is None or value.dtype == torch.bool:
        return 0.0
    return float(value.masked_fill(~value.isfinite(), 0.0).masked_fill(value.abs() > HIDDEN, 0.0).abs().max())


def _in_half(plan: Plan, rerun: Callable[..., Run], **options: Any) -> Run | None:
    """A run in float16; None: what it is called with cannot be made so."""
    try:
        return rerun(plan=plan, dtype=torch.float16, **options)
    except (RuntimeError, NotImplementedError, TypeError):
        return None


def _within_range(name: str) -> Callable[..., Any]:
    """A function of tensors by its full name, with numbers that their dtype can hold."""
    function: Any = reduce(getattr, name.split(".")[1:], torch)

    def right(*args: Any, **options: Any) -> Any:
        floats = [argument for argument in args if isinstance(argument, Tensor) and argument.is_floating_point()]
        least = torch.finfo(floats[0].dtype if floats else torch.get_default_dtype()).min

        def held(value: Any) -> Any:
            return max(value, least) if isinstance(value, float | int) and not isinstance(value, bool) else value

        limited = {key: held(each) for key, each in options.items()}
        return function(*map(held, args), **limited)

    return right
