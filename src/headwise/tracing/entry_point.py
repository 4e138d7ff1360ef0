"""Entry point: `trace`, the trace of attention code by its name or of an object in memory."""

from __future__ import annotations

import linecache
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headwise.calls import Named, Plan, check_forward, whole, with_own_sizes
from headwise.calls import find as find_call
from headwise.errors import InputError
from headwise.targets import describe_object, in_child
from headwise.tracing.axis_words import axis_words
from headwise.tracing.comment_check import compared
from headwise.tracing.legend import told_by_attentions
from headwise.tracing.probe_runs import ProbeResult, probed, unbuilt
from headwise.tracing.steps import Problem, Trace
from headwise.tracing.symbol_names import renamed
from headwise.wording import Refusal, refusal, refuses_in_lang

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
    """The trace of an object in memory.

    title: its display name. namespace: of its file. files: the user files with their display names; texts: their texts.
    init, call, cross: as the command line takes them.
    """
    options = {"init": init, "call": call, "cross": cross}
    plan, probe = planned(target, namespace=namespace, files=files, options=options, kernels=kernels, lang=lang)
    result = as_trace(plan, probe, title=title, texts=texts, supplied=supplied, lang=lang)
    # the letters of a call that a person declared are kept
    if call is not None:
        return result
    worded = _worded(result, axis_words(plan))
    told = told_by_attentions(worded)
    # comments are held to the letters that are shown
    return told if told is worded else replace(told, comments=compared(told))


def _worded(trace: Trace, words: Mapping[str, str]) -> Trace:
    """A trace in which some symbols are words that say what they count."""
    symbols = (replace(each, meaning="parameter", said="") if each.name in words else each for each in trace.symbols)
    return renamed(replace(trace, symbols=tuple(symbols)), words)


def planned(
    target: Any,
    *,
    namespace: Mapping[str, Any],
    files: Mapping[str, str],
    options: Mapping[str, Any],
    kernels: bool = False,
    lang: str = "en",
) -> tuple[Plan, ProbeResult]:
    """The plan by which an object in memory is built and called, and the result of its probe runs.

    options: "init", "call" and "cross", as the command line takes them; the rest as in `traced`.
    """
    user_files = tuple(files)
    target, init = whole(target, options.get("init"), options.get("call"))
    check_forward(target)
    options = {**options, "init": init}
    is_crossed = bool(options.get("cross"))
    search = find_call(
        target, namespace=namespace, user_files=user_files, **(options | ({"cross": None} if is_crossed else {}))
    )
    if is_crossed:
        failed = [each.plan for each in search.failures if each.plan.setting == "cross"]
        if failed and search.plans and search.plans[0].setting == "self":
            # it fails only with separate keys: trace that call, not another layout that runs by chance
            return failed[0], probed(failed[0], user_files=user_files, spoken=files, kernels=kernels, lang=lang)
        crossed = tuple(plan for plan in search.plans if plan.setting == "cross")
        search = (
            replace(search, plans=crossed)
            if crossed
            else find_call(target, namespace=namespace, user_files=user_files, **options)
        )
    if "_mask" in (options.get("call") or {}):
        # a call without the declared mask is not the requested one
        search = replace(search, plans=tuple(plan for plan in search.plans if plan.mask))
    if not search.plans:
        # such as a missing package that is needed after all
        for failure in search.failures:
            if isinstance(failure.error, Refusal):
                raise failure.error
        if search.failures and not _is_ready(search.failures[0].plan):
            return search.failures[0].plan, unbuilt(search.failures[0], files)
    plans = search.plans
    if plans and options.get("init") is None and options.get("call") is None:
        plans = (with_own_sizes(plans[0]), *plans[1:])
    plans = plans if options.get("call") is not None else tuple(map(_counted, plans))
    plan, probe = _followed(plans, tuple(each.plan for each in search.failures), user_files, files, kernels, lang)
    if not search.plans and options.get("call") is None:
        probe = replace(probe, problems=tuple(map(_guessed, probe.problems)))
    return plan, probe


def _counted(plan: Plan) -> Plan:
    """The plan with a symbol for each number that an argument is given, such as how many tokens are told ahead."""
    taken = {symbol.name for symbol in plan.symbols}
    given = {name: value for name, value in plan.call.items()
             if isinstance(value, str) and value not in taken and name not in taken and name.isidentifier()
             and not name.startswith("_")}  # fmt: skip
    counts = tuple(Named(name, "parameter", name, equals=value) for name, value in given.items())
    return replace(plan, symbols=(*plan.symbols, *counts))


def as_trace(
    plan: Plan,
    probe: ProbeResult,
    *,
    title: str,
    texts: Mapping[str, str],
    supplied: tuple[str, ...] = (),
    lang: str = "en",
) -> Trace:
    """The result of the probe runs of a plan, as a trace."""
    uncommented = Trace(
        target=title,
        sources=dict(texts),
        symbols=probe.symbols,
        steps=probe.steps,
        problems=probe.problems,
        supplied=supplied,
        init=dict(plan.init),
        call=dict(plan.call),
        lang=lang,
    )
    return replace(uncommented, comments=compared(uncommented))


def _guessed(problem: Problem) -> Problem:
    """A problem, marked as guessed where another call might not have it."""
    may_be = problem.op or problem.error.startswith(("ValueError", "TypeError", "IndexError", "AssertionError"))
    return replace(problem, setting="guessed") if may_be else problem


def _is_ready(plan: Plan) -> bool:
    """Whether a target and its arguments can be built."""
    try:
        sizes = plan.sizes(0)
        plan.build(sizes)
        plan.arguments(sizes)
    except Exception:  # noqa: BLE001  a constructor or an expression may raise anything; the failures have the reason
        return False
    return True


def _followed(
    plans: tuple[Plan, ...],
    failed: tuple[Plan, ...],
    user_files: tuple[str, ...],
    files: Mapping[str, str],
    kernels: bool,
    lang: str,
) -> tuple[Plan, ProbeResult]:
    """The first plan that runs; one that fails only with more keys than queries names the symbols."""
    crossed = next((plan for plan in failed if plan.setting == "cross"), None)
    if plans and (plans[0].setting == "cross" or crossed is None):
        return plans[0], probed(plans[0], user_files=user_files, spoken=files, kernels=kernels, lang=lang)
    if crossed is None:
        return failed[0], probed(failed[0], user_files=user_files, spoken=files, kernels=kernels, lang=lang)
    first = probed(crossed, user_files=user_files, spoken=files, kernels=kernels, lang=lang)
    if not plans:
        # it fails however it is called
        return crossed, replace(first, problems=tuple(replace(problem, setting="") for problem in first.problems))
    if _is_refused(first):
        # user code refuses this call on purpose
        return plans[0], probed(plans[0], user_files=user_files, spoken=files, kernels=kernels, lang=lang)
    masked = _masked_as(crossed, plans[0])
    result = probed(masked, user_files=user_files, spoken=files, kernels=kernels, equal={"S": "L"}, lang=lang)
    if result.problems:
        result = probed(plans[0], user_files=user_files, spoken=files, kernels=kernels, lang=lang)
        return plans[0], ProbeResult(result.symbols, result.steps, (*first.problems, *result.problems))
    return masked, ProbeResult(first.symbols, result.steps, first.problems)


def _is_refused(probe: ProbeResult) -> bool:
    """Whether user code raised the errors on purpose."""
    return bool(probe.problems) and all(
        not problem.op and problem.error.startswith(("ValueError", "NotImplementedError", "AssertionError"))
        and problem.place is not None and problem.place.source.lstrip().startswith(("raise", "assert"))
        for problem in probe.problems
    )  # fmt: skip


def _masked_as(plan: Plan, masked: Plan) -> Plan:
    """A plan with the mask of another plan, whose last axis becomes keys."""
    mask = masked.call.get("_mask")
    if plan.mask or not isinstance(mask, Mapping):
        return plan
    shape = list(mask["shape"])
    if len(shape) > 1 and shape[-1] == "L":
        shape[-1] = "S"
    return replace(plan, mask=masked.mask, call={**plan.call, "_mask": {**mask, "shape": shape}})


@refuses_in_lang
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

    target: a class, a function or a module in memory, which runs in this process; or a target of the command line
    ("attention.py:MultiHeadAttention", "note.md:MultiHeadAttention", "package.module:Class"), which runs in a
    child process with limits. init, call: its arguments, sizes as numbers or symbols ("H*d"); None: headwise searches.
    cross: only with keys of another length than queries (True), or of the same (False); None: whichever runs. aten:
    with the operations that torch dispatched for each. lang: "en" or "zh".

    `print` shows the source with the chain of shapes on each line; `steps` and `symbols` are the same as data. Errors:
    InputError where the target cannot be found, built or called.

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
    info = describe_object(target)
    return traced(
        target,
        title=info.title,
        namespace=info.namespace,
        files=info.files,
        texts={name: "".join(linecache.getlines(file)) for file, name in info.files.items()},
        init=init,
        call=call,
        cross=cross,
        kernels=aten,
        lang=lang,
    )
