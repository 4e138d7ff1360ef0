"""Mask variants: plans whose masks allow all or mask other keys, and masks of the shapes that words give."""

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor, full_like, nn, ones_like, zeros_like

from headwise.calls import Plan, call_role, callee
from headwise.dataflow import Run, attentions, find_pattern, run
from headwise.diagnosis.checks.mask import is_reached
from headwise.diagnosis.plans.small_sizes import small
from headwise.tracing import LENGTHS, meanings, spoken

__all__ = [
    "ChangedPlan",
    "FinitePlan",
    "FlippedPlan",
    "OpenPlan",
    "StandingPlan",
    "has_other_axes",
    "TurnedPlan",
    "as_said",
    "is_open",
    "is_shut",
    "looks_back",
    "said_lines",
    "said_shapes",
]

LEAST = -1e4
ENTRY = re.compile(r"\s*[-*]*\s*(?::param\s+|@param\s+)?(?:\w+\s+)?`{0,2}\*{0,2}(\w+)`{0,2}\s*[:(（：=\[,]")


class OpenPlan(Plan):
    """A plan whose mask lets everything be seen."""

    def arguments(self, sizes: Mapping[str, int], *, seed: int = 0) -> tuple[tuple[Any, ...], dict[str, Any]]:
        args, options = super().arguments(sizes, seed=seed)
        declared = self.call["_mask"]
        name = str(declared["argument"])
        mask, is_turned = options[name], isinstance(self, TurnedPlan)
        if declared["means"] == "lengths":
            lengths = [sizes[letter] for letter in ("SL" if self.setting == "cross" else "LS") if letter in sizes]
            most = lengths[0] if lengths and not declared.get("share") else 1
            options[name] = full_like(mask, 0 if is_turned else most)
        elif isinstance(mask, Tensor):
            is_one = (declared["means"] == "attend") != is_turned
            options[name] = ones_like(mask) if is_one else zeros_like(mask)
        return args, options


class TurnedPlan(OpenPlan):
    """A plan whose mask lets everything be seen where it is used the wrong way round."""


class FlippedPlan(Plan):
    """A plan whose mask closes the keys after the first where it closed the last."""

    def arguments(self, sizes: Mapping[str, int], *, seed: int = 0) -> tuple[tuple[Any, ...], dict[str, Any]]:
        args, options = super().arguments(sizes, seed=seed)
        declared = self.call.get("_mask", {})
        mask = options.get(str(declared.get("argument")))
        if isinstance(mask, Tensor) and declared["means"] != "lengths":
            turned = mask.flip(-1)
            # the first stays open, so that no query that looks back is left without a key
            turned[..., :1] = mask[..., :1]
            options[str(declared["argument"])] = turned
        return args, options


class ChangedPlan(Plan):
    """A plan whose call with other inputs hides other keys, by a mask of the same shape. seed: of these inputs."""

    def arguments(self, sizes: Mapping[str, int], *, seed: int = 0) -> tuple[tuple[Any, ...], dict[str, Any]]:
        args, options = super().arguments(sizes, seed=seed)
        declared = self.call["_mask"]
        mask = options.get(str(declared["argument"]))
        if seed and isinstance(mask, Tensor):
            # samples have as many hidden keys as others had
            options[str(declared["argument"])] = mask.flip(0 if declared["shape"][0] == "B" else -1)
        return args, options


class FinitePlan(Plan):
    """A plan whose mask is added, and holds large numbers where it held infinite ones."""

    def arguments(self, sizes: Mapping[str, int], *, seed: int = 0) -> tuple[tuple[Any, ...], dict[str, Any]]:
        args, options = super().arguments(sizes, seed=seed)
        declared = self.call.get("_mask", {})
        name = str(declared.get("argument"))
        if name in options and declared["means"] == "additive":
            options[name] = options[name].clamp(min=LEAST)
        return args, options


class StandingPlan(Plan):
    """A plan whose mask has its keys before a last axis of one, and closes the last of them but for the first."""

    def arguments(self, sizes: Mapping[str, int], *, seed: int = 0) -> tuple[tuple[Any, ...], dict[str, Any]]:
        args, options = super().arguments(sizes, seed=seed)
        declared = self.call.get("_mask", {})
        mask = options.get(str(declared.get("argument")))
        if isinstance(mask, Tensor) and mask.ndim > 1 and declared["means"] in ("attend", "blocked"):
            standing = mask.clone()
            standing[..., 1:, :] = declared["means"] == "blocked"
            options[str(declared["argument"])] = standing
        return args, options


def looks_back(result: Run) -> bool:
    """Whether no query of an attention sees a later key, and some see earlier ones."""
    for attention in attentions(result)[:1]:
        sight = find_pattern(attention)
        if sight is not None and bool(sight.visible.any()):
            later, earlier = sight.column > sight.row, sight.column < sight.row
            return not bool(sight.visible[later].any()) and bool(sight.visible[earlier].any()) and bool(later.any())
    return False


def is_shut(result: Run) -> bool:
    """Whether no query of any attention sees anything, or each sees all alike."""
    if result.output is not None and bool(result.output.isnan().all()):
        return True
    sights = [find_pattern(attention) for attention in attentions(result)]
    return bool(sights) and all(pattern is not None and not bool(pattern.seeing.any()) for pattern in sights)


def is_open(result: Run) -> bool:
    """Whether a run succeeds, and some query of it sees something."""
    return result.failure is None and not is_shut(result)


def as_said(plans: Sequence[Plan], target: Any, files: Sequence[str]) -> Iterator[Plan]:
    """A plan whose mask has the shape that words give it, where it runs with that too and meets scores."""
    for plan in plans:
        declared = plan.call.get("_mask", {})
        if call_role(plan.mask) != "mask" or not declared or declared["means"] == "lengths":
            continue
        keys = plan.keys
        shapes = said_shapes(target, plan.mask, keys=keys)
        if list(declared["shape"]) in shapes:
            continue
        for shape in shapes:
            variant = replace(plan, call={**plan.call, "_mask": {**declared, "shape": shape}})
            with contextlib.suppress(ValueError, KeyError, TypeError, RuntimeError):
                result = run(variant, sizes=small(variant), own=tuple(files))
                if result.failure is None and result.output is not None and is_reached(result):
                    yield variant
                    return


def said_shapes(target: Any, name: str, *, keys: str) -> list[list[str]]:
    """The shapes that the words of a class give to an argument, in symbols. keys: the symbol of the number of keys."""
    shapes = (_in_symbols(shape, keys) for line in said_lines(target, name) for shape in _shapes(line))
    return [list(each) for each in dict.fromkeys(tuple(shape) for shape in shapes if shape)]


def has_other_axes(plan: Plan) -> bool:
    """Whether the words of a class give the mask of a plan, and always with another number of axes."""
    try:
        ranks = {len(shape) for line in said_lines(plan.target, plan.mask) for shape in _shapes(line)}
    except (TypeError, OSError):
        return False
    return bool(ranks) and len(plan.call["_mask"]["shape"]) not in ranks


def _shapes(line: str) -> Iterator[tuple[str, ...]]:
    for chain in spoken(line):
        if len(chain.shapes) == 1:
            yield chain.shapes[0].elements


def _in_symbols(words: Sequence[str], keys: str) -> list[str]:
    """A shape of samples, queries and keys in symbols; []: it is not one."""
    out = []
    for at, word in enumerate(words):
        roles = meanings(word)
        if word == "1":
            out.append("1")
        elif "batch" in roles and at == 0:
            out.append("B")
        elif roles & {*LENGTHS} and at >= len(words) - 2:
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
