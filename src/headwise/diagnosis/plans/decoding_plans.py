"""Decoding plans: a plan with the options by which its target can decode token by token."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headwise.calls import EMPTY, Plan, callee, parameters

__all__ = ["looking_back", "with_room"]


def with_room(plan: Plan, tokens: int) -> Plan | None:
    """The plan with each number that a class has by itself, larger by so many tokens; None: no such."""
    built = parameters(plan.target) if isinstance(plan.target, type) else []
    defaults = {
        parameter.name: plan.init.get(parameter.name, parameter.default)
        for parameter in built
        if parameter.default is not EMPTY
    }
    larger = {name: number + tokens for name, number in defaults.items() if type(number) is int and number > 0}
    return replace(plan, init={**plan.init, **larger}) if larger else None


def looking_back(plan: Plan) -> Plan | None:
    """The plan with the flag on by which a target looks back only; None: it has none that is off."""

    def off(arguments: list[inspect.Parameter], options: Mapping[str, Any]) -> dict[str, Any]:
        return {
            parameter.name: True
            for parameter in arguments
            if "causal" in parameter.name and options.get(parameter.name, parameter.default) is False
        }

    built = parameters(plan.target) if isinstance(plan.target, type) else []
    init, call = off(built, plan.init), off(parameters(callee(plan.target)), plan.call)
    return replace(plan, init={**plan.init, **init}, call={**plan.call, **call}) if init or call else None
