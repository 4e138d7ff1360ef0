"""Target diagnosis: every setting of a target examined, and what was found said in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from functools import partial
from itertools import compress
from typing import Any, NamedTuple

from torch import nn

from headwise.calls import Plan, check_forward, is_of_code, is_wrong_kind, seen_names
from headwise.calls import whole as whole_of
from headwise.dataflow import run
from headwise.diagnosis.attention_owners import holds_layers, own_files
from headwise.diagnosis.caches.faults import remembered
from headwise.diagnosis.check_runner import CheckRunner, failures_of
from headwise.diagnosis.checks.causal_intent import unread_flags
from headwise.diagnosis.checks.docstrings import comment_notes, docstring_notes
from headwise.diagnosis.checks.empty_rows import spreading_rows
from headwise.diagnosis.checks.forward_method import forward_suspects
from headwise.diagnosis.checks.missing_imports import supplied_suspects
from headwise.diagnosis.checks.stated_uses import is_for_halves
from headwise.diagnosis.checks.transposed_scores import takes_weights, told_once
from headwise.diagnosis.comparison import COMPARISON, compare, share
from headwise.diagnosis.coverage import Missed, unfollowed
from headwise.diagnosis.examination import Examination
from headwise.diagnosis.examined_parts import UNREAD, examined_parts
from headwise.diagnosis.findings import findings_of, merged
from headwise.diagnosis.laws import found_by_laws, law_suspects, shown_suspects
from headwise.diagnosis.modules import apart, holds_numbers
from headwise.diagnosis.plans.input_layouts import fails_apart, is_better, tells_no_layout, turned_calls
from headwise.diagnosis.plans.settings import Settings, settings
from headwise.diagnosis.plans.small_sizes import as_given, distinct
from headwise.diagnosis.plans.user_arguments import unbuilt
from headwise.diagnosis.proof import Goal, goal_of, proved
from headwise.diagnosis.repair_loop import broken, examined
from headwise.diagnosis.result import Diagnosis
from headwise.diagnosis.submodules import Whole
from headwise.diagnosis.suspects import Suspect
from headwise.diagnosis.switched_flags import switched
from headwise.diagnosis.verdict import verdict_of, weighed
from headwise.source import is_installed
from headwise.targets import Loaded
from headwise.wording import Refusal, say

__all__ = ["diagnosed"]

# so many ways to call a target are examined at the sizes that the person gave too
MOST_SIZED = 2


def diagnosed(
    target: Any,
    *,
    title: str,
    namespace: Mapping[str, Any],
    files: Mapping[str, str],
    init: Mapping[str, Any] | None = None,
    call: Mapping[str, Any] | None = None,
    lang: str = "en",
    loaded: Loaded | None = None,
) -> Diagnosis:
    """The diagnosis of an object that is at hand. files: which are the person's own, and what to call each.

    loaded: how it came to be, where headwise loaded it.
    """
    target, init = whole_of(target, init, call)
    user_files = own_files(target, files)
    if isinstance(target, nn.Module):
        if not holds_numbers(target):
            return Diagnosis(title, "not examined", (), {}, say("doctor.no_numbers", lang=lang), lang)
        # it stays as it is
        target = apart(target)
    is_published = bool(user_files) and all(is_installed(file) for file in user_files)
    checks = CheckRunner()
    if lacking := forward_suspects(target):
        return Diagnosis(title, "faulty", findings_of(lacking, files, checks, lang), {}, "", lang)
    try:
        check_forward(target)
    except Refusal as error:
        return Diagnosis(title, "not examined", (), {}, error.said(lang), lang)
    exams, whole, said, nearest = _examine_target(target, namespace, user_files, {"init": init, "call": call}, checks)
    missed = [] if loaded is None else checks.all("names", supplied_suspects, loaded, exams)
    is_own = [exam not in whole.exams for exam in exams]
    uncalled = "" if any(is_own) else unbuilt(target, said, init, call, lang, nearest)
    if not exams:
        why = uncalled if checks.is_whole else say("doctor.not_whole", lang=lang)
        findings = findings_of(missed, files, checks, lang)
        verdict, reason = verdict_of(target, findings, exams, call, lang)
        return Diagnosis(title, verdict, findings, failures_of([checks], lang), reason and why, lang)
    exams = weighed(exams, is_in_half=is_for_halves(target))
    share(exams)
    own = list(compress(exams, is_own))
    suspects = merged([suspect for exam in exams for suspect in exam.suspects])
    if not is_published:
        suspects += checks.all("documentation", _documented, own or exams, user_files, files)
    findings = findings_of([*suspects, *missed], files, checks, lang)
    verdict, reason = verdict_of(target, findings, exams, call, lang)
    if verdict == "sound" and uncalled:
        # nothing is known of what stands around the classes inside
        verdict, reason = "not examined", uncalled
    tried = {**examined_parts(exams, whole, lang), **failures_of([exam.checks for exam in exams] + [checks], lang)}
    if verdict == "not examined" and not any(exam.is_understood for exam in exams):
        tried = unfollowed(tried, lang=lang)
    return Diagnosis(title, verdict, findings, tried, reason, lang)


class TargetExams(NamedTuple):
    """Examinations of a target and of classes in it. reason: why there is none; nearest: the best plan that fails."""

    exams: list[Examination]
    whole: Whole
    reason: str
    nearest: Plan | None


def _examine_target(
    target: Any,
    namespace: Mapping[str, Any],
    user_files: tuple[str, ...],
    arguments: Mapping[str, Any],
    checks: CheckRunner,
    *,
    is_inner: bool = False,
) -> TargetExams:
    """A target as it was written to be called: where samples are mixed, with the batch second, if that is sound."""
    result = _as_called(target, namespace, user_files, arguments, checks, is_inner=is_inner)
    if tells_no_layout(arguments["call"]):
        own = [exam for exam in result.exams if exam not in result.whole.exams]
        for call in checks.all("layout", lambda: list(turned_calls(own, target, namespace))):
            if arguments["call"] is not None:
                call = {**arguments["call"], "_layout": call["_layout"]}
            turned = _as_called(target, namespace, user_files, {**arguments, "call": call}, checks, is_inner=is_inner)
            if is_better(turned.exams, result.exams):
                return turned
    return result


def _as_called(
    target: Any,
    namespace: Mapping[str, Any],
    user_files: tuple[str, ...],
    arguments: Mapping[str, Any],
    checks: CheckRunner,
    *,
    is_inner: bool,
) -> TargetExams:
    def inside(kind: Any, namespace: Mapping[str, Any], init: Mapping[str, Any] | None) -> list[Examination]:
        return _examine_target(
            whole_of(kind, None)[0], namespace, user_files, {"init": init, "call": None}, checks, is_inner=True
        ).exams

    whole = Whole(namespace, user_files, inside, checks)
    options = {"namespace": namespace, "files": user_files, "is_inner": is_inner, "memory": checks.memory, **arguments}
    calls = checks("call", Settings(), settings, target, **options)
    if calls.refused is not None:
        raise calls.refused
    checks.keep_half(is_wanted=not is_inner)
    exams = _examinations(calls, user_files, None if is_inner else whole, checks)
    exams += [] if is_inner else checks.all("flags", switched, target, calls.plans, user_files, exams, _proved)
    if not is_inner and not any(exam.is_understood for exam in exams):
        checks("classes", None, whole.seek, target, [*calls.plans, *calls.failures])
    return TargetExams([*whole.cleared(exams), *whole.exams], whole, calls.reason, next(iter(calls.failures), None))


def _examinations(
    calls: Settings, user_files: tuple[str, ...], whole: Whole | None, checks: CheckRunner
) -> list[Examination]:
    """The examinations of all settings. whole: examines the classes inside, None: they are not wanted."""
    is_published = bool(user_files) and all(is_installed(file) for file in user_files)
    examine = partial(examined, user_files=user_files, is_published=is_published)
    plans = sorted(calls.plans, key=lambda plan: (plan.setting != "cross", bool(plan.mask)))
    out, apart = _of_failures(calls, plans, user_files, whole, checks)
    before = next((exam for exam in reversed(out) if not exam.plan.mask), None)
    for plan in plans:
        before = examine(plan, is_mask_sure=calls.is_sure(plan), before=before, checks=checks.again())
        out.append(before)
    if out:
        out[0].examined.update({} if apart is None else {"cross": apart})
        last = max(out, key=lambda exam: (exam.is_understood, bool(exam.plan.mask), exam.plan.setting == "cross"))
        place = out.index(last)
        # what empty rows spread is put right before the laws are asked and the budget goes to classes inside
        spread = last.checks.all("empty rows", spreading_rows, last)
        last = out[place] = last.repaired(*spread)
        # what one run shows is asked before the budget goes to the classes inside; what else laws would show of a whole
        # model, the classes that hold its attentions show by themselves
        shown = [] if whole is None else last.checks.all("laws", shown_suspects, last)
        is_shown = whole is not None and last.checks("classes", False, whole.holds, out)
        last, laws = found_by_laws(last, shown, is_shown=is_shown)
        out[place] = last
        for at, exam in enumerate(out):
            exam = exam.checks("proof", exam, _proved, exam, [*spread, *laws] if at == place else [])
            if exam.is_understood:
                exam = exam.checks(COMPARISON, exam, compare, exam)
            out[at] = exam
            names = exam.checks("causal", list[str](), unread_flags, exam.run()) if exam.plan.switched else []
            if names and exam.examined.get("causal") is not True:
                exam.examined["causal"] = Missed(UNREAD, {"name": ", ".join(names)})
        if not is_shown or seen_names(last.plan):
            # what only a cache shows was measured where it was found; what is beside the attentions of a model may not
            # know of it
            out = last.checks("cache", out, remembered, out)
        out += last.checks.all("sizes", _at_own_sizes, calls, out, user_files, checks)
    return told_once(out)


def _of_failures(
    calls: Settings, plans: Sequence[Plan], user_files: tuple[str, ...], whole: Whole | None, checks: CheckRunner
) -> tuple[list[Examination], Missed | None]:
    """The examinations of calls that fail by what the code does, and why a class inside was not called, None: it was.

    plans: the calls that run.
    """
    is_published = bool(user_files) and all(is_installed(file) for file in user_files)
    out: list[Examination] = []
    apart: Missed | None = None
    has_cross = any(plan.setting == "cross" and any(symbol.name == "L" for symbol in plan.symbols) for plan in plans)
    for plan in calls.failures:
        # a mask that it takes in another shape: nobody said that it takes this one
        is_taken = plan.mask and any((each.mask, each.setting) == (plan.mask, plan.setting) for each in plans)
        if is_taken or (plan.setting == "cross" and has_cross and not plan.mask):
            continue
        sure, runner = calls.is_sure(plan), checks.again()
        exam = examined(plan, user_files=user_files, is_published=is_published, is_mask_sure=sure, checks=runner)
        named = [each for each in exam.suspects if each.kind != "raises"]
        failure = exam.run().record.failure
        error = None if failure is None else failure.error
        is_certain = isinstance(error, Exception) and (is_of_code(error, plan) or is_wrong_kind(error, plan))
        is_within = plan.setting == "cross" and failure is not None and takes_weights(exam.run(), failure.operation)
        if named or (exam.suspects and (is_within or (not plans and (exam.is_understood or is_certain)))):
            out.append(exam)
        elif whole is not None and not is_published:
            # as its owner calls a class inside, so it is
            apart = apart or exam.checks("call", None, fails_apart, exam)
    return out, apart


def _at_own_sizes(
    calls: Settings, exams: list[Examination], user_files: tuple[str, ...], checks: CheckRunner
) -> list[Examination]:
    """The examinations at the sizes that the person gave, which could be others, of what shows there alone."""
    out: list[Examination] = []
    reported = {(suspect.general, suspect.span) for exam in exams for suspect in exam.suspects}
    for base in [exam for exam in exams if calls.is_sized and exam.plan.real and exam.is_understood][:MOST_SIZED]:
        sizes = as_given(base.plan)
        if sizes is None or checks.budget.is_over:
            base.examined["sizes"] = Missed(f"doctor.missed.{'too_wide' if sizes is None else 'no_budget'}")
            continue
        is_failing = run(base.plan, sizes=sizes, own=user_files).record.failure is not None
        exam, new = _at_sizes(base, sizes, reported, user_files, checks.again())
        if new and not is_failing:
            # what shows at sizes that are equal, or squares of each other, is told as it is at the next that are not
            exam, new = _at_sizes(base, distinct(base.plan, sizes), reported, user_files, checks.again())
        exam = exam.with_suspects(each for at, each in enumerate(new) if each.proved or (is_failing and at == 0))
        exam.examined["sizes"] = ", ".join(f"{name}={size}" for name, size in sizes.items() if name in base.plan.real)
        out.append(exam)
    return out


def _at_sizes(
    base: Examination, sizes: Mapping[str, int], reported: Set[object], user_files: tuple[str, ...], checks: CheckRunner
) -> tuple[Examination, list[Suspect]]:
    """The examination of a plan at some sizes, and what it shows that is not reported yet."""
    sure, is_published = base.is_mask_sure, base.is_published
    exam = examined(
        base.plan, user_files=user_files, is_published=is_published, is_mask_sure=sure, checks=checks, sizes=sizes
    )
    exam = exam.checks("proof", exam, _proved, exam, [])
    return exam, [suspect for suspect in exam.suspects if (suspect.general, suspect.span) not in reported]


def _proved(exam: Examination, laws: Sequence[Suspect]) -> Examination:
    """The examination with what was found measured, against what the output should be; late too, as it would be taken
    back unproved.
    """
    if exam.checks.budget.is_over and not exam.suspects:
        exam.examined["ideal"] = Missed("doctor.missed.no_budget")
        return exam
    goal = exam.checks("ideal", Goal(None), goal_of, exam)
    met = goal.is_met_by(exam.run().output)
    exam.examined["ideal"] = met or Missed(f"doctor.missed.{'torch_layer' if holds_layers(exam.run()) else 'no_ideal'}")
    if not exam.suspects:
        return exam
    runner, is_asked = exam.checks.again(), any(law.repair.is_runnable for law in laws)
    again = law_suspects(exam.changed(checks=runner)) if is_asked else []
    # what a law found that cannot be asked again may be left
    left = broken(exam) | {(each.kind, each.span) for each in (*again, *(laws if runner.failures else ()))}
    return exam.with_suspects(proved(exam, goal, left, laws))


def _documented(exams: list[Examination], user_files: tuple[str, ...], files: Mapping[str, str]) -> list[Suspect]:
    """What the documentation says otherwise; only what runs can say so."""
    understood = [exam for exam in exams if exam.is_understood]
    exam = max(understood, key=lambda exam: (exam.plan.setting == "cross", not exam.plan.mask), default=None)
    if exam is None:
        return []
    result = exam.run(plan=exam.free)
    is_told = result.record.failure is None
    return docstring_notes(result) + comment_notes(exam.free, user_files, files) if is_told else []
