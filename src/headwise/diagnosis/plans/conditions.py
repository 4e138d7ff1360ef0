"""Conditions: a call whose second input is one vector for each batch element, by which the tokens are modulated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headwise.calls import Found, Plan, call_role, find
from headwise.dataflow import attentions, run
from headwise.diagnosis.plans.small_sizes import small
from headwise.errors import InputError

__all__ = ["conditioned"]

# work of one search, and how many widths are tried
SHORT, MOST = 10_000, 3


def conditioned(calls: Found, target: Any, namespace: Mapping[str, Any], files: Sequence[str]) -> Found:
    """The calls, or where tokens do not attend to each other with a second input of tokens, whose name does not
    say that it holds keys, the same target called with a vector for each batch element instead.
    """
    plan = next(iter(calls.plans), None)
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


def _attends(plan: Plan, files: Sequence[str]) -> bool:
    """Whether an attention is found in a run of a plan."""
    result = run(plan, sizes=small(plan), own=tuple(files))
    return result.record.failure is None and bool(attentions(result))
