"""Mask shapes: the shape of a mask as the words of a class say it, where another one was found to run."""

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from torch import nn

from headwise.calls import Plan, call_role, callee
from headwise.dataflow import run
from headwise.diagnosis.checks.mask import is_reached
from headwise.diagnosis.plans.small_sizes import small
from headwise.tracing import LENGTHS, meanings, spoken

__all__ = ["as_said", "said_lines", "said_shapes"]

ENTRY = re.compile(r"\s*[-*]*\s*(?::param\s+|@param\s+)?(?:\w+\s+)?`{0,2}\*{0,2}(\w+)`{0,2}\s*[:(（：=\[,]")


def as_said(plans: Sequence[Plan], target: Any, own: Sequence[str]) -> Iterator[Plan]:
    """A plan whose mask has the shape that words give it, where it runs with that too and meets scores."""
    for plan in plans:
        said = plan.call.get("_mask", {})
        if call_role(plan.mask) != "mask" or not said or said["means"] == "lengths":
            continue
        keys = "S" if any(each.name == "S" for each in plan.symbols) else "L"
        shapes = said_shapes(target, plan.mask, keys=keys)
        if list(said["shape"]) in shapes:
            continue
        for shape in shapes:
            other = replace(plan, call={**plan.call, "_mask": {**said, "shape": shape}})
            with contextlib.suppress(ValueError, KeyError, TypeError, RuntimeError):
                done = run(other, sizes=small(other), own=tuple(own))
                if done.record.failure is None and done.output is not None and is_reached(done):
                    yield other
                    return


def said_shapes(target: Any, name: str, *, keys: str) -> list[list[str]]:
    """The shapes that the words of a class give to an argument, in symbols. keys: the symbol of the number of keys."""
    shapes = (_in_symbols(shape, keys) for line in said_lines(target, name) for shape in _shapes(line))
    return [list(each) for each in dict.fromkeys(tuple(each) for each in shapes if each)]


def _shapes(line: str) -> Iterator[tuple[str, ...]]:
    for chain in spoken(line):
        if len(chain.shapes) == 1:
            yield chain.shapes[0].elements


def _in_symbols(words: Sequence[str], keys: str) -> list[str]:
    """A shape of samples, queries and keys in symbols; []: it is not one."""
    out = []
    for at, word in enumerate(words):
        held = meanings(word)
        if word == "1":
            out.append("1")
        elif "batch" in held and at == 0:
            out.append("B")
        elif held & {*LENGTHS} and at >= len(words) - 2:
            out.append(keys if at == len(words) - 1 else "L")
        else:
            return []
    return out if 2 <= len(out) <= 4 and out[-1] == keys else []


def said_lines(target: Any, name: str) -> Iterator[str]:
    """What docstrings and the comments beside the parameters say of an argument."""
    kind = target if isinstance(target, type) else type(target)
    function = inspect.unwrap(kind.forward) if issubclass(kind, nn.Module) else inspect.unwrap(callee(target))
    for text in (kind.__doc__ if isinstance(target, type) else None, function.__doc__):
        is_of_it = False
        for line in (text or "").splitlines():
            entry = ENTRY.match(line)
            is_of_it = entry[1] == name if entry is not None else is_of_it and bool(line.strip())
            if is_of_it:
                yield line
    with contextlib.suppress(OSError, TypeError):
        for line in inspect.getsource(function).splitlines():
            code, _, comment = line.partition("#")
            is_beside = bool(comment) and re.match(rf"\s*{re.escape(name)}\s*[:=,)]", code) is not None
            if is_beside or re.match(rf"\s*{re.escape(name)}\b", comment):
                yield comment
