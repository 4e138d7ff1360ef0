"""Chosen scale: whether a scale is a choice: a temperature, by the length, or a number of the constructor."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import isclose, prod, sqrt

from headwise.calls import callee, evaluated, init_role, parameters
from headwise.dataflow import Run
from headwise.diagnosis.checks.head_layout import sides
from headwise.diagnosis.examination import Examination
from headwise.diagnosis.scale_factors import Factor, Scale, scales
from headwise.diagnosis.suspects import Suspect
from headwise.wording import Sentence

__all__ = ["are_unit_vectors", "beside_torch", "as_chosen", "inverts_norms", "is_given", "named_scales"]

NEAR = 1e-3
NUMBER = re.compile(r"(?<![\w.])\d+\.\d+")
# the sizes of a plan that differ from each other
PROBES = (0, 1)
# so many tokens more, to see whether the scale is of their number
MORE = 4
# roles of whole numbers that are no sizes
COUNTED = ("place", "factor", "number", "")


def is_given(run: Run, total: float, wanted: float) -> bool:
    """Whether scores are multiplied by a number that a class is built with, which is no size of its axes, or by that
    besides what is wanted: a temperature, or the place of a layer, counted from 0 or from 1.
    """
    for number in _numbers(run):
        if number > 0 and any(isclose(total, each, rel_tol=NEAR) for each in (number, 1 / number, number**-0.5)):
            return True
        shares = (number, 1 / number, number + 1, 1 / (number + 1)) if number > 0 else ()
        if any(isclose(total, wanted * share, rel_tol=NEAR) for share in shares if not isclose(share, 1)):
            return True
    return False


def inverts_norms(scale: Scale) -> bool:
    """Whether products of normalised queries and keys are multiplied by √d although these are no unit vectors, whose
    products may be (arXiv:2010.04245): those of a layer norm are as long as √d, and divided by it (arXiv:2302.05442).
    """
    path = [*scale.attention.path, scale.attention.context]
    late = prod(factor.value for factor in scale.factors if any(factor.entry is op for op in path))
    root = sqrt(scale.width)
    if not (isclose(scale.total, root, rel_tol=NEAR) and isclose(late, root, rel_tol=NEAR)):
        return False
    return not are_unit_vectors(scale)


def are_unit_vectors(scale: Scale) -> bool:
    """Whether queries and keys, without what they were multiplied by before they met, are shorter than what a layer
    norm gives, as unit vectors are.
    """
    met = [scale.attention.context, *scale.attention.path]
    before = prod(factor.value for factor in scale.factors if all(factor.entry is not op for op in met))
    lengths = [float(side.x.double().norm(dim=-1).mean()) for side in sides(scale.attention) if side.name in "qk"]
    return len(lengths) != 2 or not before or prod(lengths) <= sqrt(scale.width) * abs(before)


def _numbers(run: Run) -> Iterator[float]:
    """The numbers that a class is built or called with, by default too, that are no sizes of its axes."""
    free = {symbol.name for symbol in run.plan.symbols if symbol.meaning == "parameter"}
    for value in run.plan.init.values():
        if isinstance(value, float) or (isinstance(value, str) and value in free):
            yield float(value if isinstance(value, float) else run.sizes[value])
        elif isinstance(value, Mapping):
            # within a config, or for a module that is handed over; many a share is 1.0, which is no scale
            yield from (number for number in map(float, NUMBER.findall(str(value.get("_expr", "")))) if number != 1)
    yield from _configured(run)
    kind = run.plan.target
    for parameter in [*(parameters(kind) if isinstance(kind, type) else []), *parameters(callee(kind))]:
        is_number = isinstance(parameter.default, float) or (
            type(parameter.default) is int and init_role(parameter.name) in COUNTED
        )
        # a number of groups that is the width of a head by chance is no choice of a scale
        is_size = type(parameter.default) is int and parameter.default in run.sizes.values()
        if is_number and not is_size and parameter.name not in (*run.plan.init, *run.plan.call):
            yield float(parameter.default)


def named_scales(run: Run) -> list[float]:
    """The numbers of configs that are called a scale."""
    return [number for name, number in _config_numbers(run) if init_role(name) == "number"]


def _configured(run: Run) -> Iterator[float]:
    """The numbers of the configs that a class is built with, by default too, that are as long as no axis of the run, or
    are called what no axis is.
    """
    numbers = list(_config_numbers(run))
    if numbers:
        lengths = {size for entry in run.seen for tensor in entry.inputs for size in tensor.shape}
        lengths |= {*run.sizes.values()}
        yield from (number for name, number in numbers if number not in lengths or init_role(name) == "number")


def _config_numbers(run: Run) -> Iterator[tuple[str, float]]:
    """The numbers above 1 of the configs that a class is built with, by default too, by their names."""
    if not any(isinstance(value, Mapping) for value in run.plan.init.values()):
        return
    for config in run.plan.initial(run.sizes).values():
        for name, number in getattr(config, "__dict__", {}).items():
            if type(number) in (int, float) and number > 1:
                yield name, float(number)


def as_chosen(exam: Examination, place: int, scale: Scale, suspect: Suspect) -> Suspect:
    """A scale that is a number of its own, as a note where it is a choice: another number for more tokens, or as many
    times what it should be for heads of other widths. exam: its examination; place: of its attention among all.
    """
    factor = suspect.values.get("what")
    if suspect.kind != "scale-wrong" or not isinstance(factor, Sentence) or factor.key != "doctor.factor.constant":
        return suspect
    is_chosen = _knows_width(exam, place, scale) or _knows_length(exam, place, scale)
    return replace(suspect, severity="note") if is_chosen else suspect


def _knows_width(exam: Examination, place: int, scale: Scale) -> bool:
    """Whether with heads of other widths scores are scaled by as many times what they should be, or by just that, as by
    a temperature.
    """
    times, is_other = scale.total * sqrt(scale.width), False
    for probe in PROBES:
        there = _scale_at(exam, place, exam.free.sizes(probe))
        if there is None:
            return False
        if not any(isclose(there.total * sqrt(there.width), each, rel_tol=NEAR) for each in (1, times)):
            return False
        is_other |= there.width != scale.width
    return is_other


def _knows_length(exam: Examination, place: int, scale: Scale) -> bool:
    """Whether with more tokens scores are scaled by another number."""
    sizes = {name: size + MORE * (name in ("L", "S")) for name, size in exam.sizes.items()}
    sizes |= {symbol.name: evaluated(symbol.equals, sizes) for symbol in exam.free.symbols if symbol.equals}
    there = _scale_at(exam, place, sizes)
    return there is not None and not isclose(there.total, scale.total, rel_tol=NEAR)


def _scale_at(exam: Examination, place: int, sizes: Mapping[str, int]) -> Scale | None:
    """The scale of one attention at other sizes; None: it does not run with them."""
    runs = [exam.run(plan=exam.free, sizes=sizes, seed=seed) for seed in (0, 1)]
    measured = [] if any(run.failure is not None for run in runs) else scales(*runs)
    return measured[place] if place < len(measured) else None


def beside_torch(run: Run, scale: Scale, wanted: float) -> Factor | None:
    """A scale of its own, the usual one or a number of a config that is called one, beside that of torch's function,
    which is told nothing of it; None: there is none.
    """
    context = scale.attention.context
    if context.last != "scaled_dot_product_attention" or context.rules[1].get("scale") is not None:
        return None
    before = [factor for factor in scale.factors if factor.entry is not context]
    # torch's own scale a second time, or a number of a config
    chosen = {wanted, *(number**-0.5 for number in named_scales(run))}
    # unit vectors have any scale, and what one factor takes another may give back
    if are_unit_vectors(scale) or not any(isclose(scale.total, wanted * one, rel_tol=NEAR) for one in chosen):
        return None
    return next((factor for factor in before if isclose(scale.total, wanted * factor.value, rel_tol=NEAR)), None)
