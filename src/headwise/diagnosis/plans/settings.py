"""Settings: the ways to call a target that are examined: those that were found, and those that fail or give NaN."""

from __future__ import annotations

import linecache
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import torch

from headwise.calls import Found, Plan, Reading, Tried, call_role, callee, find, mask_arguments, masks, parameters, read
from headwise.dataflow import Run, run
from headwise.diagnosis.plans.conditions import conditioned
from headwise.diagnosis.plans.flags import causal_plans
from headwise.diagnosis.plans.further_masks import further_masks, is_spread, laid_flat
from headwise.diagnosis.plans.mask_variants import StandingPlan, as_said, said_lines, said_shapes
from headwise.diagnosis.plans.small_sizes import small, squared
from headwise.diagnosis.run_memory import RunMemory
from headwise.errors import InputError
from headwise.source import is_additive, is_installed, meaning_of, ones_of
from headwise.wording import Refusal

__all__ = ["Settings", "settings"]

# masks that are tried where none was found to run
MOST = 25
# work with which a call of a target is searched, and one of a class inside it
LONGEST, INNER = 125_000, 62_500
# the mask that tokenizers return beside token ids: 1 for a token, 0 for padding
BESIDE_IDS = "attention_mask"
# what nn.MultiheadAttention is built of
TORCH = ["embed_dim", "num_heads"]


class Settings:
    """plans: that run, though what they give may be NaN. failures: plans that raise. sure: the mask whose meaning
    the person said. told: the arguments whose meaning the code's words tell. reason: why there is none. is_sized: the
    person gave sizes as numbers. refused: what they said that cannot be.
    """

    def __init__(self) -> None:
        self.plans: list[Plan] = []
        self.failures: list[Plan] = []
        self.sure = ""
        self.told: set[str] = set()
        self.reason = ""
        self.is_sized = False
        self.refused: Refusal | None = None

    def is_sure(self, plan: Plan) -> bool:
        """Whether it is known what the mask of a plan means."""
        return bool(plan.mask) and (plan.mask == self.sure or plan.mask in self.told)


def settings(
    target: Any,
    *,
    namespace: Mapping[str, Any],
    init: Mapping[str, Any] | None,
    call: Mapping[str, Any] | None,
    files: Sequence[str],
    is_inner: bool = False,
    memory: RunMemory | None = None,
) -> Settings:
    """How a target is called. is_inner: as its owner builds it, who asks for what is to be asked for."""
    out = Settings()
    shapes = [each for each in (call or {}).values() if isinstance(each, list)]
    out.is_sized = any(type(each) is int for each in [*(init or {}).values(), *chain.from_iterable(shapes)])
    calls = _found(target, namespace, init, call, files, out, work=INNER if is_inner else LONGEST)
    if init is None and call is None:
        calls = conditioned(calls, target, namespace, files)
    declared = calls.mask or (None if call is None else call.get("_mask"))
    out.plans, out.failures = list(calls.plans), [failure.plan for failure in calls.failures]
    out.reason = out.reason or "; ".join(dict.fromkeys(_told(failure) for failure in calls.failures))
    if not out.plans and (square := next(filter(None, map(_in_square, out.failures)), None)) is not None:
        out.plans, out.failures = [square], []
    if isinstance(declared, Mapping):
        out.sure = str(declared["argument"])
        free = [plan for plan in out.plans if not plan.mask]
        out.plans = [*free, *(_masked(plan, declared) for plan in free or out.plans[:1])]
        out.failures = [failure for failure in out.failures if not failure.mask]
        if not all(is_installed(file) for file in files):
            others = further_masks(out.plans, target, namespace, files)
            out.plans += [_intended(each, target, files, out) for each in others if each.mask != out.sure]
    elif out.plans and any(plan.mask for plan in out.plans):
        nearest, out.plans = out.plans[0], laid_flat(out.plans, target, namespace, files, memory)
        if all(_is_open(plan) for plan in out.plans) and not any(_hides_standing(plan, files) for plan in out.plans):
            # masks that run and hide nothing tell nothing: one of true and false that leaves no number may
            count = len(out.plans)
            _failing_masks(next(iter(out.plans), nearest), namespace, out, files)
            out.plans[count:] = [plan for plan in out.plans[count:] if plan.call["_mask"]["means"] != "additive"]
        if not all(is_installed(file) for file in files):
            out.plans += further_masks(out.plans, target, namespace, files)
        out.plans = [_intended(plan, target, files, out) for plan in out.plans]
        out.plans += list(as_said(out.plans, target, files))
    elif out.plans:
        out.failures += _failing_masks(out.plans[0], namespace, out, files)
        # one that leaves no number means what is said of it, too
        out.plans = [_intended(plan, target, files, out) for plan in out.plans]
    out.plans += [] if is_inner else causal_plans(out.plans, target, files)
    return out


def _told(failed: Tried) -> str:
    """An error in one line, with its place; what its first line only announces stands in the second."""
    first, *rest = f"{type(failed.error).__name__}: {failed.error}".splitlines()
    text = f"{first} {rest[0].strip()}" if first.endswith(":") and rest else first
    source = "" if failed.span is None else linecache.getline(failed.span.file, failed.span.line).strip()
    return (
        f"{text.strip().rstrip(':.')} [{failed.span.line}: {source}]" if failed.span and source else text.rstrip(": ")
    )


def _in_square(plan: Plan) -> Plan | None:
    """A plan that fails, with its tokens in a square, where it runs so; None: it does not."""
    square = squared(plan)
    if square is None or square.mask:
        return None
    runs = (run(square, sizes=each).failure is None for each in (small(square), square.sizes(1)))
    return square if all(runs) else None


def _found(
    target: Any,
    namespace: Mapping[str, Any],
    init: Mapping[str, Any] | None,
    call: Mapping[str, Any] | None,
    files: Sequence[str],
    out: Settings,
    *,
    work: int,
) -> Found:
    try:
        calls = find(target, namespace=namespace, init=init, call=call, user_files=files, work=work)
    except InputError as error:
        if isinstance(error, Refusal) and error.key == "refuse.calls.mask_sizes":
            out.refused = error
        # without what it advises, which is said after it
        out.reason, calls = str(error).partition(": ")[0], Found((), ())
    return calls


def _masked(plan: Plan, declared: Mapping[str, Any]) -> Plan:
    """A plan with a mask as the person said it; in self-attention there are as many keys as queries."""
    has_keys = any(symbol.name == "S" for symbol in plan.symbols)
    shape = ["L" if each == "S" and not has_keys else each for each in declared["shape"]]
    return replace(plan, call={**plan.call, "_mask": {**declared, "shape": shape}}, mask=str(declared["argument"]))


def _intended(plan: Plan, target: Any, files: Sequence[str], out: Settings) -> Plan:
    """A plan whose mask means what its file says that masks mean, where that is the opposite of how it is used."""
    declared = plan.call.get("_mask")
    if not plan.mask or not isinstance(declared, Mapping):
        return plan
    if declared["means"] not in ("attend", "blocked"):
        return _of_ones(plan, target, files, out)
    kind = target if isinstance(target, type) else type(target)
    means = meaning_of(files, plan.mask, kind.__name__) or _as_torch(target, plan.mask)
    if not means:
        return plan
    out.told.add(plan.mask)
    if means == declared["means"]:
        return plan
    return replace(plan, call={**plan.call, "_mask": {**declared, "means": means}})


def _is_open(plan: Plan) -> bool:
    """Whether a plan has no mask, or one that has no axis of keys, and hides none."""
    declared = plan.call.get("_mask")
    return (
        not plan.mask
        or not isinstance(declared, Mapping)
        or (declared["means"] != "lengths" and declared["shape"][-1] == "1")
    )


def _hides_standing(plan: Plan, files: Sequence[str]) -> bool:
    """Whether a mask that ends with an axis of one hides the keys before it, and leaves numbers."""
    if not plan.mask:
        return False
    free, result = (run(each, sizes=small(plan), own=tuple(files)) for each in (plan, StandingPlan(**plan.__dict__)))
    if result.failure is not None or result.output is None or free.output is None:
        return False
    return bool(result.output.isfinite().all()) and not torch.equal(result.output, free.output)


def _of_ones(plan: Plan, target: Any, files: Sequence[str], out: Settings) -> Plan:
    """A plan whose mask holds ones and zeros, as words say or ids beside it, where the code adds what it is given."""
    declared = plan.call["_mask"]
    means = ones_of(list(said_lines(target, plan.mask))) if call_role(plan.mask) == "mask" else ""
    has_ids = any(isinstance(each, Mapping) and "_ids" in each for each in plan.call.values())
    if not means and plan.mask == BESIDE_IDS and has_ids and not is_additive(list(said_lines(target, plan.mask))):
        means = "attend"
    if declared["means"] != "additive" or not means:
        return plan
    for more in ({}, {"dtype": "float"}):
        variant = replace(plan, call={**plan.call, "_mask": {**declared, "means": means, **more}})
        result = run(variant, sizes=small(variant), own=tuple(files))
        if result.failure is None:
            out.told.add(plan.mask)
            return variant
    return plan


def _as_torch(target: Any, name: str) -> str:
    """What a mask means to who is called as torch's own module is, or takes edges, where nothing else says it."""
    if call_role(name) == "adjacency":
        # an edge is what is looked along
        return "attend"
    called = [parameter.name for parameter in parameters(callee(target))]
    built = [parameter.name for parameter in parameters(target)] if isinstance(target, type) else []
    is_alike = called[:3] == ["query", "key", "value"] and ("attn_mask" in called or built[:2] == TORCH)
    return "blocked" if is_alike and name == "key_padding_mask" else ""


def _failing_masks(plan: Plan, namespace: Mapping[str, Any], out: Settings, files: Sequence[str]) -> list[Plan]:
    """A plan with the mask that comes furthest, where every mask that can be thought of raises at one place.

    out: gets a plan with a mask that runs and leaves no number.
    """
    try:
        names = [name for name in mask_arguments(parameters(callee(plan.target))) if name not in plan.call]
        names = [name for name in names if call_role(name) in ("mask", "lengths", "adjacency")]
        reading = read(plan.target, namespace)
    except (TypeError, ValueError, OSError):
        return []
    for name in names[:1]:
        tried: list[tuple[Plan, Run]] = []
        for place, mask in enumerate(masks(name, reading, keys=plan.keys)):
            if place >= MOST:
                break
            there = replace(plan, call={**plan.call, "_mask": dict(mask)}, mask=name)
            try:
                result = run(there, sizes=small(there), own=tuple(files))
            except (ValueError, KeyError, TypeError, RuntimeError):
                continue
            if result.failure is None:
                if is_spread(result):
                    # it is meant in another shape
                    continue
                # rows that the mask leaves a key, and that become NaN all the same
                if result.output is not None and bool(result.output.isnan().any()):
                    out.plans.append(there)
                return []
            tried.append((there, result))
        met = [each for each in tried if _scores_met(each[1])] or tried
        if any(_is_of_other_keys(result, plan.keys) for _, result in met):
            # what the scores are of has another length than any input, and nothing says which mask that is for
            return []
        spans = {None if result.failure is None else result.failure.span for _, result in met}
        if len(spans) == 1 and None not in spans:
            return [max(met, key=lambda trial: len(trial[1].seen))[0]]
        return _of_no_kind(plan, name, reading, met, files)
    return []


def _of_no_kind(
    plan: Plan, name: str, reading: Reading, met: Sequence[tuple[Plan, Run]], files: Sequence[str]
) -> list[Plan]:
    """A plan with the mask that comes furthest, where what it fails on is its kind, and it fails in each other too."""
    if not met:
        return []
    best = max(met, key=lambda trial: len(trial[1].seen))[0].call["_mask"]["shape"]
    shapes = said_shapes(plan.target, name, keys=plan.keys) or [best]
    tried: list[tuple[Plan, Run]] = []
    for mask in masks(name, reading, keys=plan.keys):
        if list(mask["shape"]) in [list(each) for each in (best, *shapes)]:
            there = replace(plan, call={**plan.call, "_mask": dict(mask)}, mask=name)
            try:
                tried.append((there, run(there, sizes=small(there), own=tuple(files))))
            except (ValueError, KeyError, TypeError, RuntimeError):
                return []
    if any(result.failure is None for _, result in tried):
        return []
    furthest, result = max(tried, key=lambda trial: len(trial[1].seen), default=(plan, None))
    failure = None if result is None else result.failure
    is_kind = failure is not None and re.search(r"bool|dtype|Boolean", str(failure.error)) is not None
    return [furthest] if is_kind else []


def _is_of_other_keys(result: Run, keys: str) -> bool:
    """Whether the scores that a mask was laid over are of another number of keys than was given."""
    return any(result.sizes[keys] not in shape for shape in _scores_met(result))


def _scores_met(result: Run) -> list[tuple[int, ...]]:
    """The shapes of the scores among what an operation took that failed."""
    operation = None if result.failure is None else result.failure.operation
    marks = [] if operation is None else [result.marks.get(tensor.number) for tensor in operation.inputs]
    return [each.shape for each in marks if each is not None and each.kind == "pair"]
