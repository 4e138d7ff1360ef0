"""Ignoring: whether an argument changes nothing, and whether it would with another flag of the constructor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from headwise.diagnosis.following.running import Run
from headwise.recording.calls import parameters

__all__ = ["is_dead", "is_switched"]


def is_dead(run: Run, rerun: Callable[..., Run], name: str) -> bool:
    """Whether the output stays the same whatever an argument holds."""

    def change(_: Any, options: dict[str, Any]) -> None:
        value = options.get(name)
        if isinstance(value, Tensor) and value.is_floating_point():
            options[name] = value.flip(0) * 1.7 + 0.3
        elif isinstance(value, Tensor) and value.dtype == torch.long:
            # numbers of tokens stay such
            options[name] = value.max() - value

    done = rerun(more_change=change)
    return done.output is not None and run.output is not None and torch.equal(done.output, run.output)


def is_switched(run: Run, rerun: Callable[..., Run], name: str) -> bool:
    """Whether an argument counts where a flag of the constructor is the other way round."""
    target = run.plan.target
    for each in parameters(target) if isinstance(target, type) else []:
        if not isinstance(each.default, bool) or each.name in run.plan.init:
            continue
        plan = replace(run.plan, init={**run.plan.init, each.name: not each.default})
        there = partial(rerun, plan=plan)
        other = there()
        if other.output is not None and not is_dead(other, there, name):
            return True
    return False
