"""Ranks as processes with gloo, for what threads cannot show: a rank that dies, or that does not come."""

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
    ranks: int, task: Callable[..., Any], *args: Any, timeout: float = TIMEOUT, limit: float = LIMIT
) -> list[Ended]:
    """task(rank, *args) on so many processes of one gloo group, how each ended, in the order of ranks.

    task: a function of a module. Processes that are not back after `limit` seconds are ended, and TimeoutError raised.
    """
    # forked of a process that has imported torch, which takes seconds
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch.distributed", "headwise.distributed"])
    with tempfile.TemporaryDirectory() as folder:
        pipes = [context.Pipe(duplex=False) for _ in range(ranks)]
        started = [
            context.Process(target=_run, args=(pipes[rank][1], rank, ranks, f"{folder}/store", timeout, task, args))
            for rank in range(ranks)
        ]
        for process, (_, writes) in zip(started, pipes, strict=True):
            process.start()
            writes.close()
        end = time.monotonic() + limit
        try:
            # read before the process has ended: one that sends more than a pipe holds waits for that
            late = [rank for rank, (reads, _) in enumerate(pipes) if not reads.poll(max(0.0, end - time.monotonic()))]
            if late:
                raise TimeoutError(f"ranks {late} of {ranks} did not come back in {limit:.0f} s")
            return [_read(reads) for reads, _ in pipes]
        finally:
            for process in started:
                process.kill()


def _read(pipe: Connection) -> Ended:
    try:
        return Ended(*pipe.recv())
    except EOFError:
        return Ended()


def _run(pipe: Connection, rank: int, ranks: int, store: str, timeout: float, task: Callable[..., Any], args: Any):
    torch.set_num_threads(1)
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
    pipe.send((result, error, time.monotonic() - start))
    pipe.close()
    # without destroy_process_group, which may wait for a rank that has failed
    os._exit(0)
