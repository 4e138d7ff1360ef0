"""Entry point: `trace`, the trace of attention code by its name or of an object in memory."""

from __future__ import annotations

import linecache
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headwise.calls import Plan, whole
from headwise.calls import find as find_call
from headwise.errors import InputError
from headwise.targets import describe_object, in_child
from headwise.tracing.comment_check import compared
from headwise.tracing.probe_runs import Found, probed, unbuilt
from headwise.tracing.steps import Problem, Trace
from headwise.wording import Refusal, refusal

__all__ = ["as_trace", "planned", "trace", "traced"]


def traced(
    target: Any,
    *,
    title: str,
    namespace: Mapping[str, Any],
    files: Mapping[str, str],
    texts: Mapping[str, str],
    supplied: tuple[str, ...] = (),
    init: Mapping[str, Any] | None = None,
    call: Mapping[str, Any] | None = None,
    cross: bool | None = None,
    kernels: bool = False,
    lang: str = "en",
) -> Trace:
    """The trace of an object that is at hand.

    title: what the person calls it. namespace: of its file. files: which files are the person's own, and what to call
    each; texts: what they hold. init, call, cross: as the command line takes them.
    """
    options = {"init": init, "call": call, "cross": cross}
    plan, seen = planned(target, namespace=namespace, files=files, options=options, kernels=kernels, lang=lang)
    return as_trace(plan, seen, title=title, texts=texts, supplied=supplied, lang=lang)


def planned(
    target: Any,
    *,
    namespace: Mapping[str, Any],
    files: Mapping[str, str],
    options: Mapping[str, Any],
    kernels: bool = False,
    lang: str = "en",
) -> tuple[Plan, Found]:
    """How an object that is at hand is built and called, and what its probe runs tell.

    options: "init", "call" and "cross", as the command line takes them; the rest as in `traced`.
    """
    own = tuple(files)
    target, init = whole(target, options.get("init"))
    options = {**options, "init": init}
    is_crossed = bool(options.get("cross"))
    found = find_call(target, namespace=namespace, own=own, **(options | ({"cross": None} if is_crossed else {})))
    if is_crossed:
        failed = [each.plan for each in found.failures if each.plan.setting == "cross"]
        if failed and found.plans and found.plans[0].setting == "self":
            # it runs but for keys of their own: that is what was asked about, not another layout that runs by chance
            return failed[0], probed(failed[0], own=own, spoken=files, kernels=kernels, lang=lang)
        crossed = tuple(plan for plan in found.plans if plan.setting == "cross")
        found = replace(found, plans=crossed) if crossed else find_call(target, namespace=namespace, own=own, **options)
    if "_mask" in (options.get("call") or {}):
        # what runs without the mask that was declared is not what was asked for
        found = replace(found, plans=tuple(plan for plan in found.plans if plan.mask))
    if not found.plans:
        # such as a package that is not installed, and needed after all
        for each in found.failures:
            if isinstance(each.error, Refusal):
                raise each.error
        if found.failures and not _is_ready(found.failures[0].plan):
            return found.failures[0].plan, unbuilt(found.failures[0], files)
    plan, seen = _followed(found.plans, tuple(each.plan for each in found.failures), own, files, kernels, lang)
    if not found.plans and options.get("call") is None:
        seen = replace(seen, problems=tuple(map(_guessed, seen.problems)))
    return plan, seen


def as_trace(
    plan: Plan, seen: Found, *, title: str, texts: Mapping[str, str], supplied: tuple[str, ...] = (), lang: str = "en"
) -> Trace:
    """What the probe runs of a plan tell, as a trace."""
    made = Trace(
        target=title,
        sources=dict(texts),
        symbols=seen.symbols,
        steps=seen.steps,
        problems=seen.problems,
        supplied=supplied,
        init=dict(plan.init),
        call=dict(plan.call),
        lang=lang,
    )
    return replace(made, comments=compared(made))


def _guessed(problem: Problem) -> Problem:
    """A problem that another call might not have: of an operation, or of values that do not fit."""
    may_be = problem.op or problem.error.startswith(("ValueError", "TypeError", "IndexError", "AssertionError"))
    return replace(problem, setting="guessed") if may_be else problem


def _is_ready(plan: Plan) -> bool:
    """Whether a target can be built, and what it is called with be made."""
    try:
        sizes = plan.sizes(0)
        plan.build(sizes)
        plan.arguments(sizes)
    except Exception:  # noqa: BLE001  a constructor may raise anything, and so may an expression; what was tried tells why
        return False
    return True


def _followed(
    plans: tuple[Plan, ...],
    failed: tuple[Plan, ...],
    own: tuple[str, ...],
    files: Mapping[str, str],
    kernels: bool,
    lang: str,
) -> tuple[Plan, Found]:
    """The richest plan that runs; one that fails only where keys are longer than queries tells what to call each."""
    crossed = next((plan for plan in failed if plan.setting == "cross"), None)
    if plans and (plans[0].setting == "cross" or crossed is None):
        return plans[0], probed(plans[0], own=own, spoken=files, kernels=kernels, lang=lang)
    if crossed is None:
        return failed[0], probed(failed[0], own=own, spoken=files, kernels=kernels, lang=lang)
    first = probed(crossed, own=own, spoken=files, kernels=kernels, lang=lang)
    if not plans:
        # it fails however it is called
        return crossed, replace(first, problems=tuple(replace(each, setting="") for each in first.problems))
    if _is_refused(first):
        # the person's code says itself that it does not do this
        return plans[0], probed(plans[0], own=own, spoken=files, kernels=kernels, lang=lang)
    masked = _masked_as(crossed, plans[0])
    then = probed(masked, own=own, spoken=files, kernels=kernels, equal={"S": "L"}, lang=lang)
    if then.problems:
        then = probed(plans[0], own=own, spoken=files, kernels=kernels, lang=lang)
        return plans[0], Found(then.symbols, then.steps, (*first.problems, *then.problems))
    return masked, Found(first.symbols, then.steps, first.problems)


def _is_refused(found: Found) -> bool:
    """Whether the code raised an error of its own, on purpose."""
    return bool(found.problems) and all(
        not each.op and each.error.startswith(("ValueError", "NotImplementedError", "AssertionError"))
        and each.place is not None and each.place.source.lstrip().startswith(("raise", "assert"))
        for each in found.problems
    )  # fmt: skip


def _masked_as(plan: Plan, other: Plan) -> Plan:
    """A plan with the mask of another, whose last axis counts keys."""
    mask = other.call.get("_mask")
    if plan.mask or not isinstance(mask, Mapping):
        return plan
    shape = list(mask["shape"])
    if len(shape) > 1 and shape[-1] == "L":
        shape[-1] = "S"
    return replace(plan, mask=other.mask, call={**plan.call, "_mask": {**mask, "shape": shape}})


def trace(
    target: Any,
    *,
    init: Mapping[str, Any] | None = None,
    call: Mapping[str, Any] | None = None,
    cross: bool | None = None,
    aten: bool = False,
    lang: str = "en",
) -> Trace:
    """What attention code does on every line, with each axis of each tensor by its name.

    target: a class, a function or a module that is at hand, which runs in this process; or what the command line
    takes ("attention.py:MultiHeadAttention", "note.md:MultiHeadAttention", "package.module:Class"), which runs in a
    child process with limits. init, call: how it is built and called, sizes as numbers or symbols ("H*d"); None: that
    is found out. cross: only with keys of another length than queries (True), or of the same (False); None: whichever
    runs. aten: with what torch really ran for each operation. lang: "en" or "zh".

    `print` shows the source with the chain of shapes on each line; `steps` and `symbols` are the same as data. An
    InputError says what is missing where the target cannot be found, built or called.

    >>> import torch
    >>> def scores(q, k):
    ...     return q @ k.transpose(-2, -1)
    >>> for step in trace(scores, call={"q": ["B", "H", "L", "d"], "k": ["B", "H", "S", "d"]}).steps:
    ...     print(step.op, *step.outputs)
    transpose [B, H, d, S]
    @ [B, H, L, S]
    """
    if not isinstance(target, str) and not callable(target):
        raise refusal("refuse.target_object", given=repr(target)[:100])
    if isinstance(target, str):
        request = {"target": target, "init": init, "call": call, "cross": cross, "aten": aten, "lang": lang}
        answer = in_child("headwise.tracing.child:answer", request)
        if "refused" in answer:
            raise InputError(str(answer["refused"]))
        return Trace.from_dict(answer["traces"][0])
    found = describe_object(target)
    return traced(
        target,
        title=found.title,
        namespace=found.namespace,
        files=found.files,
        texts={said: "".join(linecache.getlines(file)) for file, said in found.files.items()},
        init=init,
        call=call,
        cross=cross,
        kernels=aten,
        lang=lang,
    )
