"""Temperature: whether scores are scaled by 1/√(head width) and a number besides, as a temperature is, on purpose."""

from __future__ import annotations

from math import isclose, sqrt
from typing import Any

from headwise.calls import Plan
from headwise.dataflow import Manner, run
from headwise.diagnosis.scale_factors import Scale, scales

__all__ = ["is_tempered"]

NEAR = 1e-3
PROBES = (0, 1)


def is_tempered(exam: Any, plan: Plan, place: int, scale: Scale) -> bool:
    """Whether with heads of other widths the scores of an attention are scaled by as many times what they should be, or
    by just that: then whoever wrote it knows the width, and the number is a choice. exam: its examination.
    """
    times, is_other = scale.total * sqrt(scale.width), False
    for probe in PROBES:
        sizes = plan.sizes(probe)
        both = [
            run(
                plan, Manner(dtype=exam.dtype, seed=seed), sizes=sizes, stand_ins=exam.stand_ins,
                own=exam.own, change=exam.change,
            )
            for seed in (0, 1)
        ]  # fmt: skip
        then = [] if any(each.record.failure is not None for each in both) else scales(*both)
        if len(then) <= place:
            return False
        own = then[place]
        if not any(isclose(own.total * sqrt(own.width), each, rel_tol=NEAR) for each in (1, times)):
            return False
        is_other |= own.width != scale.width
    return is_other
