"""Ignored arguments: whether an argument changes nothing, and whether it would with another flag of the constructor."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from headwise.calls import Plan, callee, parameters
from headwise.dataflow import Run
from headwise.diagnosis.checks.untaken_branches import is_elsewhere
from headwise.source import function_node

__all__ = ["is_dead", "is_dead_elsewhere", "is_read", "is_switched"]

# words of which one may choose another input
MOST = 8


def is_dead(run: Run, rerun: Callable[..., Run], name: str) -> bool:
    """Whether the output stays the same whatever an argument holds."""

    def change(_: Any, options: dict[str, Any]) -> None:
        value = options.get(name)
        if isinstance(value, Tensor) and value.is_floating_point():
            options[name] = value.flip(0) * 1.7 + 0.3
        elif isinstance(value, Tensor) and value.dtype == torch.long:
            # numbers of tokens stay such; those of documents mean no more than where they differ
            options[name] = value.max() - value.flip(-1)
        elif isinstance(value, Tensor) and value.dtype == torch.bool:
            options[name] = ~value

    result = rerun(more_change=change)
    return result.output is not None and run.output is not None and torch.equal(result.output, run.output)


def is_dead_elsewhere(run: Run, rerun: Callable[..., Run], name: str) -> bool:
    """Whether no way that was not gone reads an argument, or a flag of the call leads there, and it is dead there."""
    if not is_elsewhere(run, name):
        return True
    for parameter in parameters(callee(run.plan.target)):
        if isinstance(parameter.default, bool) and parameter.name not in run.plan.call:
            plan = replace(run.plan, call={**run.plan.call, parameter.name: not parameter.default})
            there = partial(rerun, plan=plan)
            second = there()
            if second.output is not None and not is_elsewhere(second, name):
                return is_dead(second, there, name)
    return False


def is_switched(run: Run, rerun: Callable[..., Run], name: str) -> bool:
    """Whether an argument counts where a flag of the constructor is the other way round, or a word of it another."""
    target = run.plan.target
    for parameter in parameters(target) if isinstance(target, type) else []:
        plans: list[Plan] = []
        if isinstance(parameter.default, bool) and parameter.name not in run.plan.init:
            plans = [replace(run.plan, init={**run.plan.init, parameter.name: not parameter.default})]
        elif isinstance(parameter.default, str):
            current = run.plan.init.get(parameter.name, parameter.default)
            words = [word for word in _words(target) if word != current][:MOST]
            plans = [replace(run.plan, init={**run.plan.init, parameter.name: word}) for word in words]
        if any(_counts(partial(rerun, plan=plan), name) for plan in plans):
            return True
    return False


def _counts(there: Callable[..., Run], name: str) -> bool:
    """Whether a run gives something, and something else with another argument of a name."""
    second = there()
    return second.output is not None and not is_dead(second, there, name)


def _words(kind: type) -> list[str]:
    """The words that the code of a class compares with, or chooses by: those that look like names."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    except (OSError, TypeError, SyntaxError):
        return []
    texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return list(dict.fromkeys(text for text in texts if text.isidentifier()))


def is_read(target: nn.Module, path: str) -> bool:
    """Whether code of the person's reads what a module holds, on whatever way; constructors do not count.

    path: of a parameter, a buffer or a module in the target.
    """
    parts = path.split(".")
    for count in reversed(range(len(parts))):
        kind = type(target.get_submodule(".".join(parts[:count])))
        if not kind.__module__.startswith("torch."):
            return any(parts[count] in names for names in _names(kind))
    return False


def _names(kind: type) -> Iterator[set[str]]:
    """The names that each method of a class, and of those of the person's that it inherits from, has in its code."""
    for base in kind.__mro__:
        if base not in nn.Module.__mro__:
            for label, function in vars(base).items():
                if label != "__init__" and inspect.isfunction(inspect.unwrap(function)):
                    code = inspect.unwrap(function).__code__
                    yield set(_named(code)) - _asked(code)


def _asked(code: Any) -> set[str]:
    """The attributes of which code only asks whether they are there."""
    tree = function_node(code)
    if tree is None:
        return set()
    asked = [part for node in ast.walk(tree) if isinstance(node, ast.Compare)
             and isinstance(node.ops[0], ast.Is | ast.IsNot) for part in (node.left, *node.comparators)]  # fmt: skip
    read = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)]
    others = {node.attr for node in read if all(node is not compared for compared in asked)}
    return {node.attr for node in asked if isinstance(node, ast.Attribute)} - others


def _named(code: Any) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, str):
            yield constant
        elif inspect.iscode(constant):
            yield from _named(constant)
