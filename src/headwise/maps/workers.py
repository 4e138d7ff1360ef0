"""Workers: threads that run parts of one job side by side, each with its share of torch's own threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch.overrides import _len_torch_function_stack
from torch.utils._python_dispatch import _len_torch_dispatch_stack

Part = TypeVar("Part")


def run_parts(work: Callable[[Part], None], parts: Sequence[Part], *, most: int) -> None:
    """Call work(part) for every part, on at most so many threads; raises the first error after all have stopped.

    A job of many small operations waits for all of torch's threads after every one of them, which on a busy machine
    takes many times as long as the operations do. Parts that run side by side wait once. In a mode that follows the
    operations of its own thread (watch, a profiler's, a fake tensor's) every part runs in that thread.
    """
    threads = min(most, len(parts))
    if threads <= 1 or _is_followed():
        for part in parts:
            work(part)
        return
    job = _Job(work, parts, torch.get_num_threads() // threads, threads)
    job.run()


def _is_followed() -> bool:
    """Whether the operations of this thread are listened to, which those of another would not be."""
    return _len_torch_dispatch_stack() > 0 or _len_torch_function_stack() > 0 or torch.compiler.is_compiling()


class _Job:
    """The threads of one job; each takes the next part until there is none, or one has failed."""

    def __init__(self, work: Callable[[Part], None], parts: Sequence[Part], threads_each: int, threads: int) -> None:
        self._calls = [lambda part=part: work(part) for part in parts]
        self._next = iter(self._calls)
        self._lock = threading.Lock()
        self._threads_each = max(1, threads_each)
        self._begun = threading.Barrier(threads + 1)
        self._error: BaseException | None = None
        self._threads = [threading.Thread(target=self._take_parts, daemon=True) for _ in range(threads)]

    def run(self) -> None:
        before = torch.get_num_threads()
        for thread in self._threads:
            thread.start()
        self._begun.wait()
        # what a thread sets for itself is also what torch gives to threads that start later
        torch.set_num_threads(before)
        try:
            for thread in self._threads:
                thread.join()
        except BaseException as error:
            # an interrupt: nobody takes another part
            self._error = error
            for thread in self._threads:
                thread.join()
            raise
        if self._error is not None:
            raise self._error

    def _take_parts(self) -> None:
        torch.set_num_threads(self._threads_each)
        self._begun.wait()
        while self._error is None:
            with self._lock:
                call = next(self._next, None)
            if call is None:
                return
            try:
                call()
            except BaseException as error:
                self._error = error
