"""An examination: one plan, its runs, what was found wrong in it so far, and what puts that right."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch

from headwise.calls import Plan
from headwise.dataflow import Manner, Run, run
from headwise.diagnosis.check_runner import CheckRunner
from headwise.diagnosis.plans.mask_variants import OpenPlan, TurnedPlan, is_open, is_shut
from headwise.diagnosis.plans.small_sizes import small
from headwise.diagnosis.repair import Change, both
from headwise.diagnosis.suspects import Suspect
from headwise.recording import Site

__all__ = ["Examination"]

# what is found out once for all repairs of one plan
KNOWN = ("sizes", "free", "dtype")


@dataclass(frozen=True, eq=False)
class Examination:
    """One plan under examination, which stays as it is: what is found, or put right, makes another one.

    suspects: found so far, in order; inherited: what puts right what was found before; stand_ins, change: that, and
    what puts the suspects right; tried: what was put right once. last: what was found last, after what had been put
    right. examined: a record of what was examined, and checks: their runs and failures, which all that come of one
    examination write.
    """

    plan: Plan
    user_files: tuple[str, ...] = ()
    is_published: bool = False
    inherited: dict[Site, Callable[..., Any]] = field(default_factory=dict)
    change: Change | None = None
    before: Change | None = None
    suspects: tuple[Suspect, ...] = ()
    tried: frozenset[tuple[str, object]] = frozenset()
    is_understood: bool = False
    is_mask_sure: bool = False
    stand_ins: Mapping[Site, Callable[..., Any]] = field(default_factory=dict)
    last: tuple[object, list[Suspect]] | None = None
    examined: dict[str, Any] = field(default_factory=dict)
    checks: CheckRunner = field(default_factory=CheckRunner)

    def changed(self, **values: Any) -> Examination:
        """The same with other values, and with what is found out once for all."""
        out = replace(self, **values)
        out.__dict__.update({name: self.__dict__[name] for name in KNOWN if name in self.__dict__})
        return out

    def repaired(self, *suspects: Suspect) -> Examination:
        """The same with things that are wrong noted and put right."""
        stand_ins, change = self.stand_ins, self.change
        for suspect in suspects:
            stand_ins, change = suspect.repair.after(stand_ins), suspect.repair.changing(change)
        tried = self.tried | {(suspect.general, suspect.span) for suspect in suspects}
        every = (*self.suspects, *suspects)
        return self.changed(suspects=every, tried=tried, stand_ins=stand_ins, change=change)

    def with_suspects(self, suspects: Iterable[Suspect]) -> Examination:
        """The same with other things told of it, and as much put right."""
        return self.changed(suspects=tuple(suspects))

    @property
    def right(self) -> object:
        """What has been put right so far, and of which plan."""
        return id(self.plan), frozenset(self.stand_ins.items()), self.change

    def without(self, suspect: Suspect) -> Examination:
        """The same with all put right but this one."""
        others = tuple(each for each in self.suspects if each is not suspect)
        stand_ins, change = self.inherited, self.before
        for kept in others:
            stand_ins, change = kept.repair.after(stand_ins), kept.repair.changing(change)
        change = self.change if suspect.repair.change is None else change
        return self.changed(suspects=others, stand_ins=stand_ins, change=change)

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Small sizes, or where the target does not take them, those of the plan."""
        sizes = small(self.plan)
        manner = Manner(dtype=self.dtype)
        memory, files = self.checks.memory, self.user_files
        result = memory(self.plan, manner, sizes=sizes, user_files=files, change=self.change)
        if result.record.failure is None:
            return sizes
        if run(self.plan, manner, own=files, change=self.change).record.failure is not None:
            return sizes
        return self.plan.sizes(0)

    @cached_property
    def free(self) -> Plan:
        """The plan with no mask, or where it must have one, with one that hides nothing."""
        if not self.plan.mask:
            return self.plan
        call = {name: each for name, each in self.plan.call.items() if name not in ("_mask", self.plan.mask)}
        _ = self.sizes
        without = replace(self.plan, call=call, mask="")
        result = self.run(plan=without)
        if result.record.failure is None:
            return without
        opened, turned = OpenPlan(**self.plan.__dict__), TurnedPlan(**self.plan.__dict__)
        # what should let all be seen hides all where a mask is used the wrong way round
        return turned if is_shut(self.run(plan=opened)) and is_open(self.run(plan=turned)) else opened

    @cached_property
    def dtype(self) -> torch.dtype:
        """float64, or float32 where the code mixes the two."""
        memory, sizes, files = self.checks.memory, small(self.plan), self.user_files
        result = memory(self.plan, Manner(), sizes=sizes, user_files=files, change=self.change)
        failure = result.record.failure
        if failure is None or not re.search(r"dtype|scalar type|Double|Float", str(failure.error)):
            return torch.float64
        single = Manner(dtype=torch.float32)
        again = run(self.plan, single, sizes=sizes, own=files, change=self.change)
        return torch.float32 if again.record.failure is None else torch.float64

    def rerun(self, *args: Any, more_change: Change | None = None, **options: Any) -> Run:
        """A run whose arguments are changed before what has been put right takes them."""
        if more_change is not None:
            options["change"] = more_change if self.change is None else both(more_change, self.change)
        return self.run(*args, **options)

    def rerun_free(self, *args: Any, **options: Any) -> Run:
        """A run whose arguments are changed, of the plan without a mask if of no other."""
        options.setdefault("plan", self.free)
        return self.rerun(*args, **options)

    def run(
        self,
        more: Mapping[Site, Callable[..., Any]] | None = None,
        *,
        plan: Plan | None = None,
        change: Change | None = None,
        sizes: Mapping[str, int] | None = None,
        **manner: Any,
    ) -> Run:
        """A run with what has been put right, and more. sizes: None: those of the examination; manner: of the run, by
        the names of Manner.
        """
        plan, change = plan or self.plan, change or self.change
        asked = Manner(**{"dtype": self.dtype, **manner})
        stand_ins = {**self.stand_ins, **(more or {})}
        return self.checks.memory(
            plan,
            asked,
            sizes=sizes or self.sizes,
            user_files=self.user_files,
            stand_ins=stand_ins,
            change=change,
            is_kept=not more,
        )
