"""Head divisibility: whether a width that the number of heads does not divide is refused when the class is built."""

from __future__ import annotations

import ast
import linecache
import traceback
from dataclasses import replace
from typing import Any

from headwise.diagnosis.checks.refusals import is_said
from headwise.diagnosis.coverage import Missed, Tried
from headwise.diagnosis.examination import Examination
from headwise.diagnosis.suspects import Suspect
from headwise.source import Span, constructors

__all__ = ["dividing_suspects"]

PRODUCTS = ("H*d", "d*H")


def dividing_suspects(exam: Examination) -> tuple[list[Suspect], Tried]:
    """A width that fits no number of heads and fails in the call, unsaid; and what was tried."""
    plan = exam.free
    widths = [name for name, value in plan.init.items() if value in PRODUCTS]
    if len(widths) != 1 or "H" not in plan.init.values() or not isinstance(plan.target, type):
        return [], Missed("doctor.missed.no_width")
    odd = f"{plan.init[widths[0]]} + 1"
    there = replace(plan, init={**plan.init, widths[0]: odd}, call=_wider(plan.call, odd))
    sizes = dict(exam.sizes)
    sizes["D"] = sizes["H"] * sizes["d"] + 1
    try:
        there.build(sizes)
    except Exception:  # noqa: BLE001  a constructor may refuse by any error
        return [], True
    failure = exam.run(plan=there, sizes=sizes).failure
    if failure is None or failure.operation is None or _is_said(failure.error):
        return [], True
    heads = next(name for name, value in plan.init.items() if value == "H")
    built = f"{widths[0]}={sizes['D']}, {heads}={sizes['H']}"
    values = {
        "name": widths[0],
        "was": sizes["D"],
        "near": heads,
        "factor": sizes["H"],
        "error": f"{built} → {failure.words}",
    }
    place = _division(plan.target) or _constructor(plan.target) or failure.span
    return [Suspect("heads-not-divisible", place, values=values, proved=True)], True


def _wider(call: Any, odd: str) -> dict[str, Any]:
    return {
        name: [odd if size in PRODUCTS else size for size in shape] if isinstance(shape, list) else shape
        for name, shape in call.items()
    }


def _is_said(error: BaseException) -> bool:
    """Whether the line that raised says that it is wrong."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and is_said(frames[-1].filename, frames[-1].lineno or 0)


def _division(kind: type) -> Span | None:
    """Where a constructor divides the width by the number of heads."""
    for constructor in constructors(kind):
        for node in ast.walk(constructor.tree):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv | ast.Div):
                return constructor.span(node)
    return None


def _constructor(kind: type) -> Span | None:
    """The line on which a constructor begins."""
    code = getattr(vars(kind).get("__init__"), "__code__", None)
    if code is None:
        return None
    for number, line in enumerate(linecache.getlines(code.co_filename), 1):
        if number >= code.co_firstlineno and line.lstrip().startswith("def "):
            text = line.rstrip()
            start = len(text) - len(text.lstrip())
            return Span(code.co_filename, code.co_qualname, number, start, number, len(text))
    return None
