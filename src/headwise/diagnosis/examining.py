"""Examining: run, find the first thing that is wrong, put it right, run again, until nothing is; then the laws."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch

from headwise.diagnosis.checks.coming import is_counted
from headwise.diagnosis.checks.crashes import crash_suspect
from headwise.diagnosis.checks.dropping import drawn_suspects
from headwise.diagnosis.checks.groups import groups_suspects
from headwise.diagnosis.checks.masking import masking_suspects
from headwise.diagnosis.checks.order import order_suspects
from headwise.diagnosis.checks.padding import padding_suspects
from headwise.diagnosis.checks.rearranging import layout_suspects
from headwise.diagnosis.checks.returning import silent_suspects
from headwise.diagnosis.checks.scaling import scales_suspects
from headwise.diagnosis.checks.sharing import sharing_suspects
from headwise.diagnosis.checks.splitting import unsplit_heads
from headwise.diagnosis.checks.values import value_suspects
from headwise.diagnosis.following.anatomy import attentions
from headwise.diagnosis.following.replacing import Site
from headwise.diagnosis.following.running import Manner, Run, run
from headwise.diagnosis.holding import Held
from headwise.diagnosis.plans.opening import FinitePlan, FlippedPlan, OpenPlan, TurnedPlan, is_shut, looks_back
from headwise.diagnosis.plans.sizing import small
from headwise.diagnosis.suspects import Change, Suspect, both, together
from headwise.recording.calls import Plan

__all__ = ["Examination", "broken", "examined"]

# more faults than this in one class are not looked for
MOST = 12
# bytes of tensors in the runs that are kept
HELD = 200 << 20
# what is found out once for all repairs of one plan
KNOWN = ("sizes", "free", "dtype")


@dataclass
class Examination:
    """One plan under examination. suspects: found so far, in order; inherited: what puts right what was found before;
    stand_ins: that, and what puts the suspects right. kept: runs that were made, by what they were asked for.
    last: what was found last, after what had been put right.
    """

    plan: Plan
    own: tuple[str, ...] = ()
    is_published: bool = False
    inherited: dict[Site, Callable[..., Any]] = field(default_factory=dict)
    change: Change | None = None
    before: Change | None = None
    suspects: list[Suspect] = field(default_factory=list)
    tried: set[tuple[str, object]] = field(default_factory=set)
    examined: dict[str, Any] = field(default_factory=dict)
    is_understood: bool = False
    is_mask_sure: bool = False
    held: Held = field(default_factory=Held)
    stand_ins: dict[Site, Callable[..., Any]] = field(default_factory=dict)
    kept: dict[tuple[object, ...], Run] = field(default_factory=dict, repr=False)
    last: tuple[object, list[Suspect]] | None = None

    def __post_init__(self) -> None:
        self.stand_ins = {**self.inherited, **self.stand_ins}

    def found(self, suspect: Suspect) -> None:
        """Take note of something that is wrong, and put it right from here on."""
        self.tried.add((suspect.kind, suspect.span))
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
        for each in others:
            out.stand_ins = together(out.stand_ins, each)
            if gone and each.change is not None:
                out.change = both(out.change, each.change)
        out.__dict__.update({name: self.__dict__[name] for name in KNOWN if name in self.__dict__})
        return out

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Small sizes, or where the target does not take them, those of the plan."""
        sizes = small(self.plan)
        manner = Manner(dtype=self.dtype)
        done = run(self.plan, manner, sizes=sizes, own=self.own, change=self.change)
        if done.record.failure is None:
            return sizes
        if run(self.plan, manner, own=self.own, change=self.change).record.failure is not None:
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
        done = self.run(plan=without)
        if done.record.failure is None:
            return without
        opened, turned = OpenPlan(**self.plan.__dict__), TurnedPlan(**self.plan.__dict__)
        # what should let all be seen hides all where a mask is used the wrong way round
        return turned if is_shut(self.run(plan=opened)) and not is_shut(self.run(plan=turned)) else opened

    @cached_property
    def dtype(self) -> torch.dtype:
        """float64, or float32 where the code mixes the two."""
        done = run(self.plan, sizes=small(self.plan), own=self.own, change=self.change)
        failure = done.record.failure
        if failure is None or not re.search(r"dtype|scalar type|Double|Float", str(failure.error)):
            return torch.float64
        single = Manner(dtype=torch.float32)
        again = run(self.plan, single, sizes=small(self.plan), own=self.own, change=self.change)
        return torch.float32 if again.record.failure is None else torch.float64

    def run(
        self,
        more: Mapping[Site, Callable[..., Any]] | None = None,
        *,
        plan: Plan | None = None,
        change: Change | None = None,
        **manner: Any,
    ) -> Run:
        """A run with what has been put right, and more. manner: of the run, by the names of Manner."""
        plan, change = plan or self.plan, change or self.change
        asked = Manner(**{"dtype": self.dtype, **manner})
        stand_ins = {**self.stand_ins, **(more or {})}
        # a run that is asked for again is not made again, where nothing is drawn from it
        key = (id(plan), frozenset(stand_ins.items()), change, asked)
        is_kept = not (more or asked.gradients or asked.training) and isinstance(plan.target, type)
        done = self.kept.pop(key, None) if is_kept else None
        if done is None:
            done = run(plan, asked, sizes=self.sizes, stand_ins=stand_ins, own=self.own, change=change)
        if is_kept:
            # the one that was asked for last stays longest
            self.kept[key] = done
            while len(self.kept) > 1 and sum(each.size for each in self.kept.values()) > HELD:
                del self.kept[next(iter(self.kept))]
        return done


def examined(
    plan: Plan,
    *,
    own: tuple[str, ...] = (),
    is_published: bool = False,
    is_mask_sure: bool = False,
    before: Examination | None = None,
    held: Held | None = None,
    sizes: Mapping[str, int] | None = None,
) -> Examination:
    """What is wrong with one plan. before: of another plan of the same target, whose repairs are taken over. sizes:
    None: small ones.

    is_published: what is unusual is so on purpose. is_mask_sure: the person said what the mask means. A check that
    raises is held: what it examines is told as not examined, and the others go on.
    """
    exam = Examination(plan, own, is_published, is_mask_sure=is_mask_sure, held=held or Held())
    if sizes is not None:
        exam.__dict__["sizes"] = dict(sizes)
    if before is not None:
        local = {site for each in before.suspects if each.is_local for site in each.stand_ins}
        exam.inherited = {site: each for site, each in before.stand_ins.items() if site not in local}
        exam.stand_ins = dict(exam.inherited)
        exam.change = exam.before = before.change
        exam.tried |= before.tried - {(each.kind, each.span) for each in before.suspects if each.is_local}
    for _ in range(MOST):
        right = exam.right
        suspects: list[Suspect] = exam.held.all("call", _suspects, exam)
        exam.last = right, suspects
        found = [each for each in suspects if (each.kind, each.span) not in exam.tried]
        if not found:
            break
        for suspect in found:
            exam.found(suspect)
    return exam


def broken(exam: Examination) -> set[tuple[str, object]]:
    """What is still found wrong when all that was found is put right."""
    known = exam.last is not None and exam.last[0] == exam.right
    found = exam.last[1] if known and exam.last is not None else _suspects(exam)
    return {(each.kind, each.span) for each in found}


def _suspects(exam: Examination) -> list[Suspect]:
    """The next things that are wrong."""
    done, held = exam.run(), exam.held
    projections = [each for each in done.seen if each.joint is not None]
    exam.is_understood = exam.is_understood or len(projections) > 1
    if done.record.failure is not None:
        suspect = held("call", None, crash_suspect, done, exam)
        return [] if suspect is None else [suspect]
    found = held.all("call", silent_suspects, done) or held.all("heads", layout_suspects, done, exam.run)
    if found:
        return found
    exam.is_understood = bool(attentions(done))
    found = held.all("dropout", lambda: drawn_suspects(done, exam.run(luck=99)))
    if found:
        return found
    free = exam.run(plan=exam.free)
    if free.record.failure is None:
        found = held.all("weights", sharing_suspects, free) or held.all("heads", groups_suspects, free)
        found = found or held.all("causal", order_suspects, free)
        if not found and not exam.is_published:
            found = held.all("weights", value_suspects, free)
        found = found or held.all("scale", _wide_heads, exam, free)
        if not found and not exam.plan.mask and not exam.is_published:
            found = held.all("mask", padding_suspects, exam, free)
        if not found and exam.plan.mask:
            # what stands on the path with a mask only
            found = held.all("mask", _late_sharing, done, free)
        if not found and exam.plan.mask and all(kind != "softmax-missing" for kind, _ in exam.tried):
            found = held.all("mask", _masking, exam, done, free)
    return found


def _late_sharing(done: Run, free: Run) -> list[Suspect]:
    """What is wrong with how weights are shared out on the path with a mask."""
    is_free = any(each.softmax is not None for each in attentions(free))
    return [each for each in sharing_suspects(done) if each.kind == "softmax-axis" or is_free]


def _wide_heads(exam: Examination, free: Run) -> list[Suspect]:
    """Heads that were never split, or else what is wrong with the scale of those that are."""
    unsplit = unsplit_heads(free)
    if not unsplit:
        return scales_suspects(exam)
    # the scale of one wide head is not that of the heads that were meant
    return [each for each in unsplit if (each.kind, each.span) not in exam.tried]


def _masking(exam: Examination, done: Run, free: Run) -> list[Suspect]:
    """What is wrong with the mask; where only earlier keys are seen, with one that closes some of these too."""
    found = _of_meaning(exam, done, free)
    said = exam.plan.call.get("_mask")
    # what puts a mask right is right for the one that it was made for
    is_mended = any(each.kind.startswith("mask") for each in exam.suspects)
    if found or is_mended or not isinstance(said, Mapping) or said["means"] == "lengths" or not looks_back(free):
        return found
    kept = exam.plan
    exam.plan = FlippedPlan(**kept.__dict__)
    flipped = exam.run()
    found = [] if flipped.record.failure is not None else _of_meaning(exam, flipped, free)
    if not found:
        exam.plan = kept
    return found


def _of_meaning(exam: Examination, done: Run, free: Run) -> list[Suspect]:
    """What is wrong with the mask in the meaning that it was given; nothing where it is right in another."""
    found = masking_suspects(done, free)
    said = exam.plan.call.get("_mask")
    if not found or exam.is_mask_sure or not isinstance(said, Mapping) or said["means"] == "lengths":
        return found
    if found[0].kind == "mask-nan" and said["means"] == "additive":
        # less than minus infinity is more than all
        finite = FinitePlan(**exam.plan.__dict__)
        named = masking_suspects(exam.run(plan=finite), free)
        if named and named[0].kind != "mask-nan":
            exam.plan = finite
            return named
    others: list[tuple[Plan, list[Suspect]]] = []
    for means in ("additive", "attend", "blocked"):
        if means == said["means"] or (means == "additive" and is_counted(done)):
            continue
        plan = replace(exam.plan, call={**exam.plan.call, "_mask": {**said, "means": means}})
        other = exam.run(plan=plan)
        if other.record.failure is not None and "dtype" not in said:
            plan = replace(plan, call={**plan.call, "_mask": {**plan.call["_mask"], "dtype": "float"}})
            other = exam.run(plan=plan)
        if other.record.failure is None and attentions(other):
            suspects = masking_suspects(other, free)
            if not suspects:
                exam.plan = plan
                return []
            others.append((plan, suspects))
    late = next((each for each in others if [s.kind for s in each[1]] == ["mask-after-softmax"]), None)
    if any(each.kind == "mask-inverted" for each in found) and late is not None:
        # nothing says that it is the wrong way round, and the other way it is wrong as well
        exam.plan, found = late
    return found
