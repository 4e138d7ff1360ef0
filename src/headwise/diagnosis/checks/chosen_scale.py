"""Chosen scale: whether a scale is a choice: by the length, or a number of the constructor."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import isclose, prod, sqrt
from typing import Any

from headwise.calls import callee, evaluated, init_role, parameters
from headwise.dataflow import Manner, Run, run
from headwise.diagnosis.checks.head_layout import sides
from headwise.diagnosis.checks.temperature import is_tempered
from headwise.diagnosis.scale_factors import Scale, scales
from headwise.diagnosis.suspects import Suspect
from headwise.wording import Sentence

__all__ = ["as_chosen", "inverts_norms", "is_given"]

NEAR = 1e-3
NUMBER = re.compile(r"(?<![\w.])\d+\.\d+")
# so many tokens more, to see whether the scale is of their number
MORE = 4
# roles of whole numbers that are no sizes
COUNTED = ("place", "factor", "number", "")


def is_given(done: Run, total: float, wanted: float) -> bool:
    """Whether scores are multiplied by a number that a class is built with, which is no size of its axes, or by that
    besides what is wanted: a temperature, or the place of a layer, counted from 0 or from 1.
    """
    for number in _numbers(done):
        if number > 0 and any(isclose(total, each, rel_tol=NEAR) for each in (number, 1 / number, number**-0.5)):
            return True
        shares = (number, 1 / number, number + 1, 1 / (number + 1)) if number > 0 else ()
        if any(isclose(total, wanted * each, rel_tol=NEAR) for each in shares if not isclose(each, 1)):
            return True
    return False


def inverts_norms(scale: Scale) -> bool:
    """Whether products of normalised queries and keys are multiplied by √d although these are no unit vectors, whose
    products may be (arXiv:2010.04245): those of a layer norm are as long as √d, and divided by it (arXiv:2302.05442).
    """
    path = [*scale.attention.path, scale.attention.context]
    late = prod(each.value for each in scale.factors if any(each.entry is one for one in path))
    root = sqrt(scale.width)
    if not (isclose(scale.total, root, rel_tol=NEAR) and isclose(late, root, rel_tol=NEAR)):
        return False
    lengths = [float(each.x.double().norm(dim=-1).mean()) for each in sides(scale.attention) if each.name in "qk"]
    return len(lengths) == 2 and prod(lengths) > root


def _numbers(done: Run) -> Iterator[float]:
    """The numbers that a class is built or called with, by default too, that are no sizes of its axes."""
    free = {each.name for each in done.plan.symbols if each.meaning == "parameter"}
    for value in done.plan.init.values():
        if isinstance(value, float) or (isinstance(value, str) and value in free):
            yield float(value if isinstance(value, float) else done.sizes[value])
        elif isinstance(value, Mapping):
            # within a config, or for a module that is handed over; many a share is 1.0, which is no scale
            yield from (number for number in map(float, NUMBER.findall(str(value.get("_expr", "")))) if number != 1)
    kind = done.plan.target
    for each in [*(parameters(kind) if isinstance(kind, type) else []), *parameters(callee(kind))]:
        is_number = isinstance(each.default, float) or (type(each.default) is int and init_role(each.name) in COUNTED)
        if is_number and each.name not in (*done.plan.init, *done.plan.call):
            yield float(each.default)


def as_chosen(exam: Any, place: int, scale: Scale, suspect: Suspect) -> Suspect:
    """A scale that is a number of its own, as a note where it is another one for more tokens, or as many times what it
    should be for heads of other widths. exam: its examination; place: of its attention among all.
    """
    what = suspect.said.get("what")
    if suspect.kind != "scale-wrong" or not isinstance(what, Sentence) or what.key != "doctor.factor.constant":
        return suspect
    if is_tempered(exam, exam.free, place, scale):
        return replace(suspect, severity="note")
    plan, sizes = exam.free, dict(exam.sizes)
    for name in ("L", "S"):
        if name in sizes:
            sizes[name] += MORE
    sizes |= {each.name: evaluated(each.equals, sizes) for each in plan.symbols if each.equals}
    longer = [
        run(
            plan, Manner(dtype=exam.dtype, seed=seed), sizes=sizes, stand_ins=exam.stand_ins, own=exam.own,
            change=exam.change,
        )
        for seed in (0, 1)
    ]  # fmt: skip
    if any(each.record.failure is not None for each in longer):
        return suspect
    then = scales(*longer)
    if len(then) <= place or isclose(then[place].total, scale.total, rel_tol=NEAR):
        return suspect
    return replace(suspect, severity="note")
