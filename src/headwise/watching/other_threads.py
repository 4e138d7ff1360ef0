"""Other threads: which thread watches, and how many watched modules run in each of the others."""

from __future__ import annotations

import threading
from collections import Counter

__all__ = ["OtherThreads"]


class OtherThreads:
    """The watched modules that run outside of the thread in which this was made."""

    def __init__(self) -> None:
        self._watching = threading.get_ident()
        self._depths: Counter[int] = Counter()

    @property
    def is_watching(self) -> bool:
        """Whether this is the thread that watches."""
        return threading.get_ident() == self._watching

    def enter(self) -> bool:
        """A module starts to run in this thread; whether it is the outermost one."""
        thread = threading.get_ident()
        self._depths[thread] += 1
        return self._depths[thread] == 1

    def leave(self) -> None:
        """A module has run in this thread."""
        thread = threading.get_ident()
        if self._depths[thread] > 1:
            self._depths[thread] -= 1
        else:
            # thread numbers are used again
            self._depths.pop(thread, None)
