"""Submodules: the classes inside a whole model that hold its attentions, each examined by itself as well."""

from __future__ import annotations

import copy
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from torch import nn

from headwise.calls import Plan, parameters
from headwise.diagnosis.attention_owners import Owner, around, insides, owners
from headwise.diagnosis.check_runner import CheckRunner
from headwise.diagnosis.checks.mask_path import reached_by, uses
from headwise.diagnosis.comparison import COMPARISON
from headwise.diagnosis.coverage import Missed, Tried
from headwise.diagnosis.examination import Examination
from headwise.diagnosis.inner_calls import Calls, is_alike, note_calls
from headwise.diagnosis.suspects import Suspect
from headwise.recording import Budget

__all__ = ["Whole"]

# work; a class that is not begun by then is named as not examined
LONGEST = 150_000

# the families of what is wrong with masks
MASKS = ("mask", "padding")
# of a target, the names of its file, and what it is built with
Examine = Callable[[Any, Mapping[str, Any], Mapping[str, Any] | None], list[Examination]]


class Whole:
    """What a target holds. exams: of the classes inside; classes: their names; others: of which only faults are told;
    missed: those that could not be examined by themselves, and why.
    """

    def __init__(
        self, namespace: Mapping[str, Any], files: Sequence[str], examine: Examine, checks: CheckRunner
    ) -> None:
        self._namespace, self._files, self._examine, self._checks = namespace, tuple(files), examine, checks
        self._calls: Calls = {}
        self.exams: list[Examination] = []
        self.classes: list[type[nn.Module]] = []
        self.others: list[type[nn.Module]] = []
        self.missed: dict[str, Tried] = {}

    def holds(self, exams: Sequence[Examination]) -> bool:
        """Examine the classes that hold the attentions of a target that runs; whether that shows all there is."""
        understood = [exam for exam in exams if exam.is_understood]
        if not understood:
            return False
        exam = max(understood, key=lambda exam: not exam.plan.mask)
        run = exam.run(plan=exam.free)
        holders = owners(run, self._files)
        inner = [holder for holder in holders if holder.path]
        # where tokens are pooled alone, a class that does it holds no attention
        if isinstance(run.target, nn.Module) and (inner or not holders):
            beside = around(run.target, inner, self._files)
            kinds = [owner.kind for owner in (*inner, *beside)]
            arguments = _given(exam.plan, exam.sizes, kinds)
            for understood_exam in understood:
                note_calls(self._calls, understood_exam, kinds)
            self._take(run.target, inner, arguments)
            self._look_around(run.target, beside, arguments)
        return bool(holders) and len(inner) == len(holders) and not self.missed

    def seek(self, target: Any, plans: Sequence[Plan]) -> None:
        """Examine what a target holds that does not run, or in which no attention was found."""
        built = _built(target, plans)
        if built is None:
            return
        budget = Budget(LONGEST)
        paths: list[str] = []
        for owner in insides(built, self._files):
            if budget.is_over:
                return
            exams = self._checks.all(_named(owner), self._examined, owner, built, {}, budget)
            # what is around a class that was examined is told for its faults alone
            is_around = any(path.startswith(f"{owner.path}.") for path in paths)
            if exams and (not is_around or _are_faulty(exams)):
                paths.append(owner.path)
                self._keep(owner, exams, is_named=not is_around)

    def cleared(self, exams: Sequence[Examination]) -> list[Examination]:
        """Examinations of the whole without what is only suspected there of a class that was examined by itself, and
        without what comes of masks where such a class has a fault of its own with them.

        An examination of such a class is taken back first where all that it finds is shown right by the whole, which
        hands the class what it is made for.
        """
        self.exams = [exam for exam in self.exams if not _are_shown_right(exam, exams)]
        inner = [suspect for exam in self.exams for suspect in exam.suspects if suspect.severity == "fault"]
        is_masked = any(suspect.fault.family in MASKS for suspect in inner)
        return [
            exam.with_suspects(
                suspect for suspect in exam.suspects
                if (suspect.proved or not self._is_inside(suspect)) and not (is_masked and suspect.is_of_tokens)
            )
            for exam in exams
        ]  # fmt: skip

    def _is_inside(self, suspect: Suspect) -> bool:
        """Whether a fault is that of a class that was examined by itself."""
        span = suspect.span
        if span is None or suspect.severity != "fault":
            return False
        if suspect.fault.family == "cache" and not any(exam.examined.get("cache") is True for exam in self.exams):
            # no class inside was examined with a cache
            return False
        codes = [getattr(inspect.unwrap(each.forward), "__code__", None) for each in (*self.classes, *self.others)]
        places = {(code.co_filename, code.co_qualname.rpartition(".")[0]) for code in codes if code is not None}
        return any(span.file == file and span.function.startswith(f"{name}.") for file, name in places)

    def _take(self, target: nn.Module, holders: Sequence[Owner], options: Mapping[type, dict[str, Any]]) -> None:
        budget = Budget(LONGEST)
        for owner in holders:
            name = _named(owner)
            if budget.is_over:
                self.missed[name] = Missed("doctor.missed.no_budget")
                continue
            exams = self._checks.all(name, self._examined, owner, target, options.get(owner.kind, {}), budget)
            if exams:
                self._keep(owner, exams)
            else:
                self.missed[name] = Missed("doctor.missed.class_unknown")

    def _look_around(self, target: nn.Module, holders: Sequence[Owner], options: Mapping[type, dict[str, Any]]) -> None:
        """Examine classes of which it is not asked that they can be: what is wrong in one is told."""
        budget = Budget(LONGEST)
        for owner in holders:
            exams = self._checks.all(_named(owner), self._examined, owner, target, options.get(owner.kind, {}), budget)
            if _are_faulty(exams):
                self._keep(owner, exams, is_named=False)

    def _keep(self, owner: Owner, exams: list[Examination], *, is_named: bool = True) -> None:
        (self.classes if is_named else self.others).append(owner.kind)
        self.exams += exams

    def _examined(self, owner: Owner, target: nn.Module, options: dict[str, Any], budget: Budget) -> list[Examination]:
        """The examinations of a class, built by itself or else as it is; none where no attention is found in it."""
        module = sys.modules.get(owner.kind.__module__)
        namespace = self._namespace if module is None else vars(module)
        ways: list[tuple[Any, dict[str, Any] | None]] = [(owner.kind, options)] if options else []
        ways += [(owner.kind, None), (copy.deepcopy(owner.module(target)).float(), None)]
        for way, init in ways:
            exams = self._as_called(owner.kind, self._examine(way, namespace, init))
            if any(exam.is_understood for exam in exams):
                return exams
            if budget.is_over:
                break
        return []

    def _as_called(self, kind: type[nn.Module], exams: list[Examination]) -> list[Examination]:
        """The examinations of a class that call it as its owner does, where some do; none of the others fails."""
        calls = self._calls.get(kind, [])
        alike = [exam for exam in exams if any(is_alike(exam.plan, call) for call in calls)]
        running = [exam for exam in exams if not any(suspect.fault.ends_call for suspect in exam.suspects)]
        return alike or (running if calls else exams)


def _are_shown_right(exam: Examination, exams: Sequence[Examination]) -> bool:
    """Whether an examination finds faults, all of which the calls of the whole show right."""
    faults = [suspect for suspect in exam.suspects if suspect.severity == "fault"]
    return bool(faults) and all(_is_shown_right(fault, exams) for fault in faults)


def _is_shown_right(suspect: Suspect, exams: Sequence[Examination]) -> bool:
    """Whether a scale, or a mask that reaches the line, is examined there in a call of the whole, and nothing found."""
    family, span = suspect.fault.family, suspect.span
    if span is None or family not in ("scale", *MASKS):
        return False
    same = [each for exam in exams for each in exam.suspects if each.fault.family == family and each.span is not None]
    if any((each.span.file, each.span.line) == (span.file, span.line) for each in same if each.span is not None):
        return False
    # what was not compared in the whole shows nothing there
    compared = (each for each in exams if isinstance(each.examined.get(COMPARISON), str))
    for exam in (each for each in compared if each.is_understood):
        run = exam.run()
        reached = reached_by(run) if family in MASKS and exam.plan.mask else set()
        at_line = [entry for entry in run.seen if (entry.span.file, entry.span.line) == (span.file, span.line)]
        if any(family == "scale" or uses(each, reached) for each in at_line):
            return True
    return False


def _named(owner: Owner) -> str:
    """Under which name it is told that a class was not examined."""
    return f"class {owner.kind.__name__}"


def _are_faulty(exams: Sequence[Examination]) -> bool:
    return any(suspect.severity == "fault" for exam in exams for suspect in exam.suspects)


def _built(target: Any, plans: Sequence[Plan]) -> nn.Module | None:
    """A module of a target, as far as it can be built: by the defaults of its constructor, which go together, or else
    with the sizes of a plan.
    """
    if isinstance(target, nn.Module):
        return target
    asked = {parameter.name for parameter in parameters(target) if parameter.default is parameter.empty}
    usual = [replace(each, init={name: each.init[name] for name in each.init if name in asked}) for each in plans[:1]]
    for plan in [*usual, *plans]:
        try:
            built = plan.build(plan.sizes(-1))
        except Exception:  # noqa: BLE001  a constructor may raise anything
            continue
        if isinstance(built, nn.Module):
            return built
    return None


def _given(plan: Plan, sizes: Mapping[str, int], kinds: Sequence[type]) -> dict[type, dict[str, Any]]:
    """The flags, rates and words, other than by default, with which classes inside a target were first built."""
    calls: dict[type, dict[str, Any]] = {}
    with _watched(kinds, calls):
        try:
            plan.build(sizes)
        except Exception:  # noqa: BLE001  a constructor may raise anything; then nothing is known
            return {}
    return calls


@contextmanager
def _watched(kinds: Sequence[type], options: dict[type, dict[str, Any]]) -> Iterator[None]:
    """A block in which it is noted how classes are built."""
    before = {kind: vars(kind).get("__init__") for kind in kinds}
    for kind in kinds:
        setattr(kind, "__init__", _noting(kind, inspect.getattr_static(kind, "__init__"), options))  # noqa: B010
    try:
        yield
    finally:
        for kind, function in before.items():
            if function is None:
                delattr(kind, "__init__")
            else:
                setattr(kind, "__init__", function)  # noqa: B010


def _noting(kind: type, function: Any, values: dict[type, dict[str, Any]]) -> Any:
    def noted(self: Any, *args: Any, **options: Any) -> None:
        if type(self) is kind and kind not in values:
            signature = inspect.signature(function)
            bound = signature.bind(self, *args, **options).arguments
            values[kind] = {
                name: value
                for name, value in bound.items()
                if isinstance(value, bool | float | str) and value != signature.parameters[name].default
            }
        function(self, *args, **options)

    return noted
