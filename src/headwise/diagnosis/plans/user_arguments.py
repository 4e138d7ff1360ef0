"""User arguments: the init and call that a user declares, checked before anything is tried; and how to write them."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from inspect import Parameter
from typing import Any

from headwise.calls import Plan, call_role, callee, checked_call, checked_init, init_role, parameters, whole
from headwise.diagnosis.coverage import Missed
from headwise.wording import Refusal, say

__all__ = ["check_said", "as_json", "in_python", "no_mask", "unbuilt"]

SIZES = {"width": "H*d", "heads": "H", "head_width": "d"}
# signs of an error that are told
LONGEST = 300
INPUTS = ("", "query", "key", "value")


def check_said(target: Any, init: Mapping[str, Any] | None, call: Mapping[str, Any] | None) -> None:
    """Refuse what a person says of a target that it cannot take, as a name that is no parameter of it."""
    target, init = whole(target, init, call)
    if isinstance(target, type) and not callable(getattr(target, "forward", None)):
        # it may be called in another way, which is for the search to find
        return
    checked_init(init, _parameters(target) if isinstance(target, type) else [])
    checked_call(call, _parameters(callee(target)))


def in_python(error: Exception, lang: str) -> str:
    """A refusal of the command line with the names that its options have in Python."""
    text = error.said(lang) if isinstance(error, Refusal) else str(error)
    return text.replace("--init", "init=").replace("--call", "call=")


def as_json(declared: Mapping[str, Any]) -> str:
    """What is given, as the command line takes it; what is None by itself is left out."""
    return json.dumps(
        {name: each for name, each in declared.items() if each is not None}, ensure_ascii=False, default=str
    )


def _tip(target: Any, nearest: Plan | None) -> dict[str, str]:
    """How to say how a target is built and called, with its own parameters, as JSON: "init" and "call". nearest: what
    came furthest of all that was tried, which is said where it is short.
    """
    if nearest is not None and nearest.call:
        values = {"init": as_json(nearest.init), "call": as_json(nearest.call)}
        if sum(map(len, values.values())) < LONGEST:
            return values
    built = _parameters(target) if isinstance(target, type) else []
    init = {
        parameter.name: SIZES.get(init_role(parameter.name), 1)
        for parameter in built
        if parameter.default is Parameter.empty
    }
    try:
        called = _parameters(callee(target))
    except (TypeError, ValueError, AttributeError):
        called = []
    needed = [
        parameter.name
        for parameter in called
        if parameter.default is Parameter.empty and call_role(parameter.name) in INPUTS
    ]
    call = {name: ["B", "L", "H*d"] for name in needed}
    return {"init": as_json(init), "call": as_json(call)}


def unbuilt(
    target: Any,
    error: str,
    init: Mapping[str, Any] | None,
    call: Mapping[str, Any] | None,
    lang: str,
    nearest: Plan | None = None,
) -> str:
    """That no way to build or call a target was found, or that the one that the person said fails; and what to say,
    as in the nearest that was tried.
    """
    options = [name for name, each in (("--init", init), ("--call", call)) if each is not None]
    key = "doctor.said_call" if options else "doctor.unknown_call"
    return say(key, lang=lang, error=error[:LONGEST].rstrip("."), said=", ".join(options), **_tip(target, nearest))


def _parameters(function: Any) -> list[Parameter]:
    kinds = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    return [] if any(parameter.kind in kinds for parameter in parameters(function)) else list(parameters(function))


def no_mask(plans: list[Plan]) -> Missed:
    """Why there is no mask: there is no argument for one, or none was found that it takes."""
    try:
        names = list(inspect.signature(callee(plans[0].target)).parameters)
    except (TypeError, ValueError):
        names = []
    name = next((each for each in names if call_role(each) == "mask"), "")
    return Missed("doctor.missed.mask_unknown", {"name": name}) if name else Missed("doctor.missed.no_mask")
