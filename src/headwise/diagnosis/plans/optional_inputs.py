"""Optional inputs: plans that also hand over the positions that a call may be given and is not by default."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from headwise.calls import Plan, call_role, callee, parameters
from headwise.dataflow import run
from headwise.diagnosis.plans.small_sizes import small

__all__ = ["filled_plans"]


def filled_plans(plans: Sequence[Plan], files: Sequence[str]) -> Iterator[Plan]:
    """The plan without a mask whose optional positions are given too, each with the first shape that runs."""
    free = [plan for plan in plans if not plan.mask]
    plan = next((each for each in free if each.setting == "cross"), next(iter(free), None))
    if plan is None:
        return
    filled = plan
    for parameter in parameters(callee(plan.target)):
        name = parameter.name
        if parameter.default is not None or name in filled.call or call_role(name) != "encoding":
            continue
        trials = (replace(filled, call={**filled.call, name: shape}) for shape in _shapes(plan, name))
        filled = next(
            (trial for trial in trials if run(trial, sizes=small(trial), own=tuple(files)).failure is None), filled
        )
    if filled is not plan:
        yield filled


def _shapes(plan: Plan, name: str) -> list[list[str]]:
    """The shapes of positions of this name: those of the tokens that they are added to, first for each sample."""
    inputs = {argument: list(map(str, value)) for argument, value in plan.call.items() if isinstance(value, list)}
    inputs = {argument: shape for argument, shape in inputs.items() if not argument.startswith("_")}
    shapes = [*(shape for argument, shape in inputs.items() if argument in name), *inputs.values()]
    shared = [["1" if axis == "B" else axis for axis in shape] for shape in shapes]
    flat = [[axis for axis in shape if axis != "B"] for shape in shapes]
    return [list(each) for each in dict.fromkeys(map(tuple, [*shapes, *shared, *flat]))]
