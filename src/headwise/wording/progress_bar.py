"""Progress bar: the current step, on stderr while it takes time, and how far it has come; only on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from headwise.wording import say
from headwise.wording.screen import visible

__all__ = ["progress_bar"]


@contextmanager
def progress_bar(lang: str) -> Iterator[Callable[[str, Mapping[str, object]], None]]:
    """A block that yields a function of a step's key and values, which shows it beside a bar; only on a terminal.

    "done" and "total" among the values of a step say how far it has come; without them the bar only moves.
    """
    if not _is_watched():
        yield _silent
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(say("step.starting", lang=lang), total=None)
        now = ""

        def tell(key: str, values: Mapping[str, object]) -> None:
            nonlocal now, task
            completed, total = (values.get(name) for name in ("done", "total"))
            if key != now:
                # a bar of its own, since one that has a total cannot lose it
                progress.remove_task(task)
                spoken = {name: value for name, value in values.items() if name not in ("done", "total")}
                task = progress.add_task(visible(say(key, lang=lang, **spoken)), total=None)
                now = key
            if isinstance(completed, int) and isinstance(total, int) and total > 0:
                progress.update(task, completed=completed, total=total)

        yield tell


def _is_watched() -> bool:
    """Whether stderr is a terminal that can redraw a line."""
    from rich.console import Console

    console = Console(stderr=True)
    return sys.stderr.isatty() and console.is_terminal and not console.is_dumb_terminal


def _silent(key: str, values: Mapping[str, object]) -> None:
    """Show nothing."""
