"""Ranks as processes with gloo, for what threads cannot show: a rank that dies, or that does not come."""

import atexit
import datetime
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

# the wall-clock limit of a case, and how long a collective waits for a rank that does not come
LIMIT, TIMEOUT = 60.0, 20.0


class Ended(NamedTuple):
    """How a rank ended: what its task returned, or the error, as "Type: sentence"; both None where it just died.

    seconds: what the task took, without the start of the process.
    """

    result: Any = None
    error: str | None = None
    seconds: float = 0.0


def on_processes(
    ranks: int, task: Callable[..., Any], *args: Any, timeout: float = TIMEOUT, limit: float = LIMIT, ends: bool = False
) -> list[Ended]:
    """task(rank, *args) on so many processes of one gloo group, how each ended, in the order of ranks.

    task: a function of a module. Processes that are not back after `limit` seconds are ended, and TimeoutError raised.
    ends: whether a rank may end or stay behind; the processes are then the task's alone, else those of earlier tasks.
    """
    pool = Pool() if ends else _pool
    try:
        return pool.run(ranks, task, args, timeout, limit)
    finally:
        if ends:
            pool.end()


class Pool:
    """Processes that run one task after the other, each in a group of its own; torch is warm from the second one on."""

    def __init__(self) -> None:
        self._workers: list[tuple[Any, Connection]] = []

    def run(self, ranks: int, task: Callable[..., Any], args: Any, timeout: float, limit: float) -> list[Ended]:
        """How each of so many ranks ended."""
        while len(self._workers) < ranks:
            self._workers.append(_started())
        pipes = [pipe for _, pipe in self._workers[:ranks]]
        with tempfile.TemporaryDirectory() as folder:
            for rank, pipe in enumerate(pipes):
                pipe.send((rank, ranks, f"{folder}/store", timeout, task, args))
            end = time.monotonic() + limit
            # read before the process has ended: one that sends more than a pipe holds waits for that
            late = [rank for rank, pipe in enumerate(pipes) if not pipe.poll(max(0.0, end - time.monotonic()))]
            if late:
                self.end()
                raise TimeoutError(f"ranks {late} of {ranks} did not come back in {limit:.0f} s")
            ended = [_read(pipe) for pipe in pipes]
        if any(each.error is not None or each == Ended() for each in ended):
            # a group in which a rank has failed is no more left in order
            self.end()
        return ended

    def end(self) -> None:
        """End the processes; the next task starts others."""
        for process, _ in self._workers:
            process.kill()
        self._workers.clear()


_pool = Pool()
atexit.register(_pool.end)


def _started() -> tuple[Any, Connection]:
    # forked of a process that has imported torch, which takes seconds
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch.distributed", "headwise.distributed"])
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(there,), daemon=True)
    process.start()
    there.close()
    return process, here


def _read(pipe: Connection) -> Ended:
    try:
        return Ended(*pipe.recv())
    except (EOFError, ConnectionResetError):
        return Ended()


def _serve(pipe: Connection) -> None:
    torch.set_num_threads(1)
    while True:
        rank, ranks, store, timeout, task, args = pipe.recv()
        torch.manual_seed(0)
        dist.init_process_group(
            "gloo", rank=rank, world_size=ranks, store=dist.FileStore(store, ranks),
            timeout=datetime.timedelta(seconds=timeout),
        )  # fmt: skip
        dist.barrier()
        start, result, error = time.monotonic(), None, None
        try:
            result = task(rank, *args)
        except Exception as came:  # noqa: BLE001  # told to the test
            error = f"{type(came).__name__}: {came}"
        seconds, is_whole = time.monotonic() - start, error is None and _left()
        pipe.send((result, error, seconds))
        if not is_whole:
            # without destroy_process_group, which may wait for a rank that has failed
            os._exit(0)


def _left() -> bool:
    """Whether all ranks have left their group, which a task may have done itself."""
    if not dist.is_initialized():
        return True
    try:
        # none leaves while another still needs it
        dist.barrier()
    except RuntimeError:
        return False
    dist.destroy_process_group()
    return True
