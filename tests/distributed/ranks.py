"""Ranks as threads of one process: a case of several ranks costs milliseconds, and its tensors need no copying."""

import threading
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.testing._internal.distributed import multi_threaded_pg as threaded

# no case needs nearly as long; a rank that waits for one that will not come ends here
LIMIT = 120.0


def on_ranks(ranks: int, task: Callable[..., Any], *args: Any, limit: float = LIMIT) -> list[Any]:
    """task(rank, *args) on so many ranks of one default process group; what each returned, in the order of ranks.

    The first error that a rank raised is raised here. The group is the default one inside of `task`, and gone after.
    """
    results: list[Any] = [None] * ranks
    errors: list[BaseException | None] = [None] * ranks
    store, threads_each = dist.HashStore(), torch.get_num_threads()
    torch._C._distributed_c10d._set_thread_isolation_mode(True)
    threaded._install_threaded_pg()
    if not hasattr(threaded.ThreadLocalWorld, "comms"):
        # torch 2.11 empties this where a group is destroyed, and these groups lack it
        threaded.ThreadLocalWorld.comms = []

    def run(rank: int) -> None:
        torch.set_num_threads(threads_each)
        try:
            dist.init_process_group("threaded", rank=rank, world_size=ranks, store=store)
            results[rank] = task(rank, *args)
        except BaseException as error:  # noqa: BLE001  # raised again by the caller's thread
            errors[rank] = error
            threaded.ProcessLocalGroup.exception_handle(error)
        finally:
            if dist.is_initialized():
                dist.destroy_process_group()

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(ranks)]
    try:
        for thread in threads:
            thread.start()
        end = time.monotonic() + limit
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))
        late = [rank for rank, thread in enumerate(threads) if thread.is_alive()]
        if late:
            raise TimeoutError(f"ranks {late} of {ranks} did not come back in {limit:.0f} s")
    finally:
        threaded.ProcessLocalGroup.reset()
        threaded._uninstall_threaded_pg()
        torch._C._distributed_c10d._set_thread_isolation_mode(False)
    # a rank that was waiting for one that failed leaves by SystemExit
    failed = [error for error in errors if error is not None]
    for error in sorted(failed, key=lambda error: isinstance(error, SystemExit)):
        raise error
    return results
