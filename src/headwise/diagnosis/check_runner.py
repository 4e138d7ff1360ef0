"""Check runner: each check by itself, so that one that fails ends no other, and is told."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ParamSpec, TypeVar

from headwise.diagnosis.coverage import Missed, as_plain
from headwise.diagnosis.run_memory import RunMemory
from headwise.recording import Budget
from headwise.wording.screen import visible

__all__ = ["NEEDED", "CheckRunner", "failures_of"]

Given = ParamSpec("Given")
Found = TypeVar("Found")

HOME = Path(__file__).parents[1]
# work: a person waits, and the child that is ended says nothing at all
LONGEST = 250_000
# signs of an error's own words that are told
MOST = 160
# without these nothing can be said to be sound
NEEDED = frozenset({"call", "heads", "weights", "causal", "scale", "comparison", "proof"})
# nor without these, which are not begun when the budget is over
ASKED = frozenset({"mask", "laws"})


@dataclass
class CheckRunner:
    """Runs checks, each by itself. failures: why those that raised were not finished, by the names that are reported;
    budget: when it is over, no other check is begun but those that a verdict needs; memory: the runs of the checks.
    """

    failures: dict[str, Missed] = field(default_factory=dict)
    budget: Budget = field(default_factory=lambda: Budget(LONGEST))
    memory: RunMemory = field(default_factory=RunMemory, repr=False)

    def __call__(
        self, name: str, otherwise: Found, check: Callable[Given, Found], *args: Given.args, **options: Given.kwargs
    ) -> Found:
        """What a check gives; where it raises, or comes too late, what stands in its place, and that is noted."""
        if self.budget.is_over and name not in NEEDED:
            self.failures.setdefault(name, Missed("doctor.missed.no_budget"))
            return otherwise
        try:
            return check(*args, **options)
        except Exception as error:  # noqa: BLE001  ours or a stranger's: it is told, and the other checks go on
            self.note(name, error)
            return otherwise

    def all(
        self, name: str, check: Callable[Given, list[Found]], *args: Given.args, **options: Given.kwargs
    ) -> list[Found]:
        """All that a check finds; where it raises, nothing, and its failure is noted."""
        return self(name, [], check, *args, **options)

    def keep_half(self, *, is_wanted: bool) -> None:
        """Leave the checks half of the work at least, however much of it the search of a call took."""
        self.budget = Budget(max(self.budget.left, LONGEST // 2)) if is_wanted else self.budget

    def again(self) -> CheckRunner:
        """Checks of another plan of the same diagnosis, which share its budget and its runs."""
        return CheckRunner(budget=self.budget, memory=self.memory)

    def note(self, name: str, error: Exception) -> None:
        """Keep the first failure under a name."""
        self.failures.setdefault(name, _failed(error))

    @property
    def is_whole(self) -> bool:
        """Whether no check failed that a verdict needs."""
        return not (NEEDED | ASKED) & set(self.failures)


def failures_of(every: Sequence[CheckRunner], lang: str) -> dict[str, str]:
    """What checks that failed, or were too late, did not examine to the end, and why."""
    return {name: as_plain(each, lang=lang) for checks in every for name, each in checks.failures.items()}


def _failed(error: Exception) -> Missed:
    frames = traceback.extract_tb(error.__traceback__)
    # the innermost line of headwise's that was running: a mistake of ours is found there
    where = next(
        (f"{Path(frame.filename).relative_to(HOME.parent).as_posix()}:{frame.lineno}" for frame in reversed(frames)
         if HOME in Path(frame.filename).parents), "?",
    )  # fmt: skip
    return Missed("doctor.missed.failed", {"error": _told(error), "where": where})


def _told(error: Exception) -> str:
    """An error in one line: its type and the first line of its words."""
    try:
        words = next(iter(str(error).splitlines()), "")
    except Exception:  # noqa: BLE001  an error of the person's may fail even to speak
        words = ""
    words = words if len(words) <= MOST else f"{words[:MOST]}…"
    return visible(f"{type(error).__name__}: {words}" if words else type(error).__name__)
