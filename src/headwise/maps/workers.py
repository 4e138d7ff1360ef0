"""Workers: threads that run the parts of one job side by side, each with its share of torch's own threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import torch

Part = TypeVar("Part")


def run_parts(work: Callable[[Part], None], parts: Sequence[Part], *, most: int) -> None:
    """Call work(part) for every part, on at most so many threads; raises the first error after all have stopped.

    A job of many small operations waits for all of torch's threads after every one of them, which on a busy machine
    takes many times as long as the operations do. Parts that run side by side wait once. In a mode that follows the
    operations of its own thread (a watch, a profiler's, a fake tensor's) every part runs in that thread.
    """
    threads = min(most, len(parts))
    if threads <= 1 or _is_followed():
        for part in parts:
            work(part)
        return
    before = torch.get_num_threads()
    begun = threading.Barrier(threads + 1)

    def begin() -> None:
        # a thread takes the number for all threads when it first asks, which would undo one that it has set before
        torch.get_num_threads()
        torch.set_num_threads(max(1, before // threads))
        begun.wait()

    with ThreadPoolExecutor(threads, thread_name_prefix="headwise", initializer=begin) as pool:
        jobs: list[Future[None]] = []
        has_begun = False
        try:
            for part in parts:
                jobs.append(pool.submit(work, part))
            begun.wait()
            has_begun = True
        except RuntimeError:
            if jobs:
                raise
            # no thread can start, as when the interpreter is ending
        finally:
            # after a thread that could not start, or an interrupt, the others need not wait for it
            if not has_begun:
                begun.abort()
            # what a thread sets for itself is also what torch gives to threads that start later
            torch.set_num_threads(before)
        try:
            for part in () if jobs else parts:
                work(part)
            for job in jobs:
                job.result()
        finally:
            # after an error or an interrupt nobody takes another part
            for job in jobs:
                job.cancel()


def _is_followed() -> bool:
    """Whether the operations of this thread are listened to, which those of another would not be."""
    modes = torch._C._len_torch_dispatch_stack() + torch._C._len_torch_function_stack()
    return modes > 0 or torch.compiler.is_compiling()
