"""An examination: one plan, its runs, what was found wrong in it so far, and what puts that right."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch

from headwise.calls import Plan
from headwise.dataflow import Manner, Run, run
from headwise.diagnosis.check_runner import CheckRunner
from headwise.diagnosis.plans.mask_variants import OpenPlan, TurnedPlan, is_shut
from headwise.diagnosis.plans.small_sizes import small
from headwise.diagnosis.suspects import Change, Suspect, both, together
from headwise.recording import Site

__all__ = ["Examination"]

# what is found out once for all repairs of one plan
KNOWN = ("sizes", "free", "dtype")


@dataclass
class Examination:
    """One plan under examination. suspects: found so far, in order; inherited: what puts right what was found before;
    stand_ins: that, and what puts the suspects right. last: what was found last, after what had been put right.
    """

    plan: Plan
    user_files: tuple[str, ...] = ()
    is_published: bool = False
    inherited: dict[Site, Callable[..., Any]] = field(default_factory=dict)
    change: Change | None = None
    before: Change | None = None
    suspects: list[Suspect] = field(default_factory=list)
    tried: set[tuple[str, object]] = field(default_factory=set)
    examined: dict[str, Any] = field(default_factory=dict)
    is_understood: bool = False
    is_mask_sure: bool = False
    checks: CheckRunner = field(default_factory=CheckRunner)
    stand_ins: dict[Site, Callable[..., Any]] = field(default_factory=dict)
    last: tuple[object, list[Suspect]] | None = None

    def __post_init__(self) -> None:
        self.stand_ins = {**self.inherited, **self.stand_ins}

    def repair(self, suspect: Suspect) -> None:
        """Take note of something that is wrong, and put it right from here on."""
        self.tried.add((suspect.general, suspect.span))
        self.suspects.append(suspect)
        self.stand_ins = together(self.stand_ins, suspect)
        if suspect.change is not None:
            self.change = both(self.change, suspect.change)

    @property
    def right(self) -> object:
        """What has been put right so far, and of which plan."""
        return id(self.plan), frozenset(self.stand_ins.items()), self.change

    def without(self, suspect: Suspect) -> Examination:
        """The same with all put right but this one."""
        others = [each for each in self.suspects if each is not suspect]
        gone = [each.change for each in self.suspects if each is suspect and each.change is not None]
        out = replace(self, suspects=others, stand_ins={}, change=self.before if gone else self.change)
        for kept in others:
            out.stand_ins = together(out.stand_ins, kept)
            if gone and kept.change is not None:
                out.change = both(out.change, kept.change)
        out.__dict__.update({name: self.__dict__[name] for name in KNOWN if name in self.__dict__})
        return out

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
        return turned if is_shut(self.run(plan=opened)) and not is_shut(self.run(plan=turned)) else opened

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
