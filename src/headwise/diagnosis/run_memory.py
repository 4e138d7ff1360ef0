"""Run memory: the runs of a diagnosis, so that none is made twice."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from headwise.calls import Plan
from headwise.dataflow import Manner, Run, run
from headwise.recording import Site, is_out_of_memory

__all__ = ["RunMemory"]

# bytes of tensors in the runs that are kept
HELD = 200 << 20


@dataclass
class RunMemory:
    """The last runs of a diagnosis, the one that was asked for last at the end. A class that is built anew for each
    run, and called with the same numbers, gives the same; an object in memory may not.
    """

    kept: list[tuple[Hashable, Run]] = field(default_factory=list, repr=False)

    def __call__(
        self,
        plan: Plan,
        manner: Manner,
        *,
        sizes: Mapping[str, int],
        user_files: tuple[str, ...],
        stand_ins: Mapping[Site, Any] | None = None,
        change: Callable[[Any, dict[str, Any]], None] | None = None,
        is_kept: bool = True,
    ) -> Run:
        """One run, as `headwise.dataflow.run` makes it. is_kept: it may be asked for again. Where memory is at an end
        there is none, and a MemoryError says so.
        """
        result = self._run(
            plan, manner, sizes=sizes, user_files=user_files, stand_ins=dict(stand_ins or {}), change=change,
            is_kept=is_kept,
        )  # fmt: skip
        if result.failure is not None and is_out_of_memory(result.failure.error):
            self.kept.clear()
            raise MemoryError(str(result.failure.error))
        return result

    def _run(
        self,
        plan: Plan,
        manner: Manner,
        *,
        sizes: Mapping[str, int],
        user_files: tuple[str, ...],
        stand_ins: Mapping[Site, Any],
        change: Callable[[Any, dict[str, Any]], None] | None,
        is_kept: bool,
    ) -> Run:
        if manner.gradients or not isinstance(plan.target, type):
            # its weights may be changed afterwards, or are the user's own
            return run(plan, manner, sizes=sizes, stand_ins=stand_ins, own=user_files, change=change)
        key = (type(plan), plan.target, tuple(sizes.items()), manner, user_files, change)
        alike = (each for each in self.kept if each[0] == key and _is_alike(each[1], plan, stand_ins))
        cached = next(alike, None)
        if cached is None:
            result = run(plan, manner, sizes=sizes, stand_ins=stand_ins, own=user_files, change=change)
        else:
            result = cached[1]
            self.kept = [each for each in self.kept if each is not cached]
            if result.plan is not plan or result.stand_ins != stand_ins:
                result = replace(result, plan=plan, stand_ins=stand_ins)
        if is_kept or cached is not None:
            self.kept.append((key, result))
            while len(self.kept) > 1 and sum(each.size for _, each in self.kept) > HELD:
                del self.kept[0]
        return result


def _is_alike(past: Run, plan: Plan, stand_ins: Mapping[Site, Any]) -> bool:
    """Whether a plan with replacements does what a past run did: where replacements differ, no operation ran."""
    if past.plan is not plan and not _is_same(past.plan, plan):
        return False
    apart = {site for site in {**past.stand_ins, **stand_ins} if past.stand_ins.get(site) is not stand_ins.get(site)}
    return not apart or not {span for _, span, _ in apart} & past.spans


def _is_same(plan: Plan, second: Plan) -> bool:
    """Whether two plans build and call the same; the order of arguments tells which numbers each gets."""
    try:
        return plan == second and list(plan.init) == list(second.init) and list(plan.call) == list(second.call)
    except (RuntimeError, TypeError, ValueError):
        # tensors and arrays among the arguments have no single truth
        return False
