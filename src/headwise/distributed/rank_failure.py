"""Rank failure: which rank has died, or has not come to a call, where an exchange fails."""

from __future__ import annotations

import time

import torch.distributed as dist

from headwise.errors import DistributedError

# how long a rank that has failed waits for the others to say that they have failed too
PATIENCE = 0.4


def lost(error: RuntimeError, group: dist.ProcessGroup | None, call: str) -> DistributedError:
    """The error of a call that cannot be finished, which names the ranks that did not come to it.

    Each rank that fails leaves a mark in the store by which the ranks met. Those without one are lost: they died, or
    are somewhere else.
    """
    missing = _without_mark(group)
    first = next(iter(str(error).strip().splitlines()), type(error).__name__)
    if not missing:
        return DistributedError(
            f"all ranks must come to {call}, but it failed, and no rank is known to be lost: {first}"
        )
    which = f"rank {missing[0]}" if len(missing) == 1 else f"ranks {', '.join(map(str, missing))}"
    return DistributedError(f"all ranks must come to {call}, but {which} did not: see what happened there ({first})")


def _without_mark(group: dist.ProcessGroup | None) -> list[int]:
    """The ranks of a group that have left no mark within PATIENCE; none where there is no store to ask."""
    members = dist.group.WORLD if group is None else group
    if members is None:
        return []
    rank_here, ranks = dist.get_rank(members), dist.get_world_size(members)
    missing = [rank for rank in range(ranks) if rank != rank_here]
    try:
        store = dist.distributed_c10d._get_default_store()
        names = {rank: f"headwise/failed/{dist.get_global_rank(members, rank)}" for rank in range(ranks)}
        store.set(names[rank_here], "1")
        end = time.monotonic() + PATIENCE
        while missing and time.monotonic() < end:
            missing = [rank for rank in missing if not store.check([names[rank]])]
            time.sleep(PATIENCE / 20)
    except (RuntimeError, ValueError):
        # the store has gone with the rank that held it
        return []
    return missing
