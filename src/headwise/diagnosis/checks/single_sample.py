"""Single sample: whether a call that runs with several samples runs with one."""

from __future__ import annotations

import re
from collections.abc import Callable

from headwise.dataflow import Run
from headwise.diagnosis.checks.refusals import is_refusal
from headwise.diagnosis.suspects import Suspect

__all__ = ["single_sample_suspects"]


def single_sample_suspects(run: Run, rerun: Callable[..., Run]) -> list[Suspect]:
    """That a batch of one raises, since an operation gives it fewer axes: the first that does."""
    if run.sizes.get("B", 1) == 1 or _is_fixed(run):
        return []
    alone: Run = rerun(sizes={**run.sizes, "B": 1})
    failure = alone.failure
    if failure is None or failure.span is None or is_refusal(failure):
        return []
    for whole, single in zip(run.record.operations, alone.record.operations, strict=False):
        if whole.span != single.span or whole.name != single.name or not whole.outputs or not single.outputs:
            break
        if len(single.outputs[0].shape) < len(whole.outputs[0].shape):
            values = {"how": "single"}
            return [Suspect("single-sample-raises", single.span, values=values, proved=True, evidence=failure.words)]
    return []


def _is_fixed(run: Run) -> bool:
    """Whether a target is built for a number of samples."""
    is_built_for = any(re.search(r"\bB\b", str(value)) for value in run.plan.init.values())
    return is_built_for or any(symbol.name == "B" and symbol.fixed for symbol in run.plan.symbols)
