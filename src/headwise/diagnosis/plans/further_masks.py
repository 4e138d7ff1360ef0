"""Further masks: plans with the other masks that a target takes, and with masks of other ranks."""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from headwise.calls import Plan, Reading, call_role, callee, mask_arguments, masks, parameters, read, visible
from headwise.dataflow import Manner, Run, attentions, is_laid_over, run
from headwise.diagnosis.checks.mask import is_reached
from headwise.diagnosis.checks.mask_arguments import is_unread, withheld
from headwise.diagnosis.plans.mask_variants import FinitePlan, said_lines, said_shapes
from headwise.diagnosis.plans.small_sizes import small
from headwise.diagnosis.run_memory import RunMemory

__all__ = ["further_masks", "is_spread", "laid_flat", "taken_otherwise"]

# masks that are tried for one argument
MOST = 30
# and of each kind, where one fails
TRIED = 90
# as many that run and change nothing tell that none does
ALIKE = 4
# masks of other things than keys
OTHERS = re.compile(r"head|quer|(^|_)q(_|$)|target|tgt|loss|out|layer|causal|look")
# one that hides nothing
SHOWN = re.compile(r"torch\.(ones|zeros)\((.*), dtype=torch\.(\w+)\)")
RANK = re.compile(r"\b\w*mask\w*\.(?:ndim|dim\(\))\s*==\s*([2-4])|len\(\w*mask\w*\.(?:shape|size\(\))\)\s*==\s*([2-4])")


def further_masks(
    plans: Sequence[Plan], target: Any, namespace: Mapping[str, Any], files: Sequence[str]
) -> Iterator[Plan]:
    """Plans with a mask in each further argument, and of each rank that the code tells from others."""
    masked = next((plan for plan in plans if plan.mask and plan.setting == "cross"), None)
    masked = masked or next((plan for plan in plans if plan.mask), None)
    if masked is None or masked.call["_mask"]["means"] == "lengths":
        return
    try:
        names = mask_arguments(parameters(callee(target)))
        reading = read(target, namespace)
    except (TypeError, ValueError, OSError):
        return
    if call_role(masked.mask) == "mask":
        yield from _of_ranks(masked, reading, files)
    for name in names:
        is_free = name not in masked.call and name != masked.mask
        if is_free and call_role(name) == "mask" and not OTHERS.search(name):
            variant = _with_mask(masked, name, reading, files) or _withheld(masked, name, reading, files)
            variant = variant or _without_effect(masked, name, reading, files)
            if variant is not None:
                yield variant
        elif call_role(name) == "mask" and (exchanged := _exchanged(masked, name, files)) is not None:
            yield exchanged


def _exchanged(masked: Plan, name: str, files: Sequence[str]) -> Plan | None:
    """The plan with the mask of another input, which hides nothing there, in place of its own; None: it fails."""
    given = masked.call.get(name)
    shown = SHOWN.fullmatch(str(given.get("_expr"))) if isinstance(given, Mapping) else None
    if shown is None:
        return None
    value, sizes, kind = shown.groups()
    means = "attend" if value == "ones" else "additive" if kind == "float" else "blocked"
    mask = {"argument": name, "means": means, "shape": sizes.split(", "), **({} if kind == "bool" else {"dtype": kind})}
    declared = masked.call["_mask"]
    call = {**masked.call, masked.mask: visible(declared["shape"], declared)}
    order = [parameter.name for parameter in parameters(callee(masked.target)) if parameter.name in call]
    ordered = {each: call[each] for each in order if each != name}
    beside = {each: call[each] for each in call if each not in order and each != "_mask"}
    plan = replace(masked, call={**ordered, **beside, "_mask": mask}, mask=name)
    return plan if _output(plan, files) is not None else None


def laid_flat(
    plans: Sequence[Plan],
    target: Any,
    namespace: Mapping[str, Any],
    files: Sequence[str],
    memory: RunMemory | None = None,
) -> list[Plan]:
    """The plans, those with a mask that gives the scores more axes than they have without it with another that does
    not, or where there is none, without it: laid over them so, it was meant in another shape.
    """
    memory = memory or RunMemory()
    free = {each.setting: each for each in plans if not each.mask}
    out: list[Plan] = []
    for plan in plans:
        plain = free.get(plan.setting)
        wanted = 0 if plain is None or not plan.mask else _rank(plain, files, memory)
        if (_rank(plan, files, memory) <= wanted) if wanted else not (plan.mask and _is_spread(plan, files, memory)):
            out.append(plan)
            continue
        try:
            ways = masks(plan.mask, read(target, namespace), keys=plan.keys)
        except (TypeError, ValueError, OSError):
            continue
        others = (replace(plan, call={**plan.call, "_mask": dict(way)}) for way in ways)
        among = (variant for variant, _ in zip(others, range(MOST), strict=False) if _hides(variant, files))
        out += [
            variant
            for variant in among
            if (_rank(variant, files, memory) == wanted if wanted else not _is_spread(variant, files, memory))
        ][:1]
    return out


def _is_spread(plan: Plan, files: Sequence[str], memory: RunMemory) -> bool:
    return is_spread(memory(plan, Manner(), sizes=small(plan), user_files=tuple(files)))


def is_spread(result: Run) -> bool:
    """Whether scores are given more axes on their way, as by a mask that has more."""
    return any(is_laid_over(entry) for attention in attentions(result) for entry in attention.path)


def _rank(plan: Plan, files: Sequence[str], memory: RunMemory) -> int:
    """Of how many axes the largest weighted sum of a plan is; 0: it has none."""
    result = memory(plan, Manner(), sizes=small(plan), user_files=tuple(files))
    return max((len(attention.context.operation.outputs[0].shape) for attention in attentions(result)), default=0)


def _of_ranks(masked: Plan, reading: Reading, files: Sequence[str]) -> Iterator[Plan]:
    """The mask in each other rank that the person's code asks for."""
    declared = masked.call["_mask"]
    for rank in sorted(_ranks(files) - {len(declared["shape"])}):
        ways = (mask for mask in masks(masked.mask, reading, keys=masked.keys) if mask["means"] == declared["means"])
        for place, size in enumerate(each for each in ways if len(each["shape"]) == rank):
            plan = replace(masked, call={**masked.call, "_mask": dict(size)})
            if place < MOST and size["shape"][0] == "B" and _hides(plan, files):
                yield plan
                break


def _ranks(files: Sequence[str]) -> set[int]:
    return {
        int(rank)
        for file in files
        for ranks in RANK.findall("".join(linecache.getlines(file)))
        for rank in ranks
        if rank
    }


def _with_mask(masked: Plan, name: str, reading: Reading, files: Sequence[str]) -> Plan | None:
    """A plan with another argument's mask, where it is brought to scores; None: there is none that runs."""
    call = {key: each for key, each in masked.call.items() if key != "_mask"}
    if masked.mask in call:
        return None
    for place, mask in enumerate(masks(name, reading, keys=masked.keys)):
        if place >= MOST:
            break
        plan = replace(masked, call={**call, "_mask": dict(mask)}, mask=name)
        if _hides(plan, files):
            return plan
        if mask["means"] == "additive" and _hides(finite := FinitePlan(**plan.__dict__), files):
            return finite
    return None


def _without_effect(masked: Plan, name: str, reading: Reading, files: Sequence[str]) -> Plan | None:
    """A plan with a mask that changes nothing in any form that runs; None: one changes something, or none runs."""
    call = {key: each for key, each in masked.call.items() if key != "_mask"}
    if masked.mask in call:
        return None
    before, alike = _output(replace(masked, call=call, mask=""), files), list[Plan]()
    if before is None:
        return None
    for mask in islice(masks(name, reading, keys=masked.keys), MOST):
        plan = replace(masked, call={**call, "_mask": dict(mask)}, mask=name)
        after = _output(plan, files)
        if after is not None and not torch.equal(before, after):
            return None
        alike += [] if after is None else [plan]
        if len(alike) == ALIKE:
            break
    return next(iter(alike), None)


def _output(plan: Plan, files: Sequence[str]) -> Tensor | None:
    """What a plan gives; None: it fails, or gives no tensor."""
    try:
        result = run(plan, sizes=small(plan), own=tuple(files))
    except (ValueError, KeyError, TypeError, RuntimeError):
        return None
    return None if result.failure is not None else result.output


def taken_otherwise(masked: Plan, files: Sequence[str], *, is_sure: bool = False) -> Plan | None:
    """A plan whose mask fails with one of another kind, which runs and meets scores; None: there is none, or words say
    that it takes this one. What fails with a mask that nobody said it takes is no fault of it. is_sure: what it means
    is known.
    """
    declared = masked.call.get("_mask", {})
    if is_sure and "dtype" in declared:
        # what it must hold is somebody's word too
        return None
    try:
        is_said = is_sure or list(declared["shape"]) in said_shapes(masked.target, masked.mask, keys=masked.keys)
        if is_said and any("bool" in line.lower() for line in said_lines(masked.target, masked.mask)):
            return None
        ways = masks(masked.mask, read(masked.target, masked.namespace), keys=masked.keys)
        if is_said:
            # what it holds is not said, as its axes are
            ways = iter([{**declared, "dtype": kind} for kind in ("int", "float") if kind != declared.get("dtype")])
    except (KeyError, TypeError, ValueError, OSError):
        return None
    others = (replace(masked, call={**masked.call, "_mask": dict(each)}) for each in ways if each != declared)
    return next((plan for plan in islice(others, TRIED) if _hides(plan, files)), None)


def _withheld(masked: Plan, name: str, reading: Reading, files: Sequence[str]) -> Plan | None:
    """A plan with a mask of the keys that the code reads nowhere, and an attention that takes one and is given none."""
    if masked.setting != "cross" or masked.mask in masked.call or not is_unread(masked.target, name):
        return None
    means = next(iter(masks(name, reading, keys=masked.keys)))["means"]
    call = {**masked.call, "_mask": {"argument": name, "means": means, "shape": ["B", masked.keys]}}
    plan = replace(masked, call=call, mask=name)
    result = run(plan, sizes=small(plan), own=tuple(files))
    is_free = result.record.failure is None and any(
        withheld(result, attention.context.operation) is not None for attention in attentions(result)
    )
    return plan if is_free else None


def _hides(plan: Plan, files: Sequence[str]) -> bool:
    """Whether a plan runs, gives numbers, and its mask meets scores."""
    try:
        result = run(plan, sizes=small(plan), own=tuple(files))
    except (ValueError, KeyError, TypeError, RuntimeError):
        return False
    if result.record.failure is not None or result.output is None or bool(result.output.isnan().any()):
        return False
    return is_reached(result)
