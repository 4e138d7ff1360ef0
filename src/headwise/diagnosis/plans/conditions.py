"""Conditions: on what there is attention: a second input that is a vector of each sample, or an option that is on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from headwise.calls import Found, Plan, call_role, find
from headwise.dataflow import attentions, mixing_of, run
from headwise.diagnosis.plans.flags import turned_on
from headwise.diagnosis.plans.small_sizes import small
from headwise.errors import InputError

__all__ = ["conditioned"]

# work of one search, and how many widths are tried
SHORT, MOST = 10_000, 3


def conditioned(calls: Found, target: Any, namespace: Mapping[str, Any], files: Sequence[str]) -> Found:
    """The calls, or where tokens do not attend to each other, the same target with the option on by which they do; or
    called with a vector for each sample, in place of a second input of tokens that no name says to hold keys.
    """
    plan = next(iter(calls.plans), None)
    if plan is not None and (opened := _opened(plan, target, files)) is not None:
        return replace(calls, plans=(opened,))
    inputs = [] if plan is None else [name for name, value in plan.call.items() if isinstance(value, list)]
    if plan is None or len(inputs) != len(("tokens", "condition")) or call_role(inputs[1]) or _attends(plan, files):
        return calls
    widths = dict.fromkeys(["D", *(value for value in plan.init.values() if isinstance(value, str))])
    for width in list(widths)[:MOST]:
        call = {inputs[0]: ["B", "L", "D"], inputs[1]: ["B", width]}
        try:
            again = find(target, namespace=namespace, call=call, cross=False, user_files=files, work=SHORT)
        except InputError:
            continue
        if again.plans and _attends(again.plans[0], files):
            return again
    return calls


def _opened(plan: Plan, target: Any, files: Sequence[str]) -> Plan | None:
    """A plan with one option of a constructor on that is off by default, by which tokens are mixed that are not without
    it; None: they are, or no option does that.
    """
    ways = [(name, way) for name, way in turned_on(plan, target) if way.init != plan.init]
    result = run(plan, sizes=small(plan), own=tuple(files)) if ways else None
    if result is None or result.failure is not None or attentions(result) or mixing_of(result):
        return None
    return next((replace(way, switched=(name,)) for name, way in ways if _attends(way, files)), None)


def _attends(plan: Plan, files: Sequence[str]) -> bool:
    """Whether an attention is found in a run of a plan."""
    result = run(plan, sizes=small(plan), own=tuple(files))
    return result.record.failure is None and bool(attentions(result))
