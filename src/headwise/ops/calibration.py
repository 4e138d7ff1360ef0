"""Calibration: on a machine that the table of rates does not have, one short measurement of each backend."""

from __future__ import annotations

import os
import time
from functools import lru_cache

import torch

from headwise.masks import causal, window
from headwise.ops import blockwise, costs, reference, sdpa
from headwise.ops.call import Call

# "0" leaves it out: the rates of the nearest machine are read as they are
VARIABLE = "HEADWISE_CALIBRATION"
# smaller calls are not worth it
FEWEST_PAIRS = 1 << 19
# of the call that is timed, and how long all rounds of it may take together
HEADS, LENGTH, WIDTH, SECONDS = 4, 256, 64, 0.06


def factor(backend: str, call: Call) -> float:
    """What the estimates of a backend are multiplied by here: 1.0 where the table has this machine."""
    is_wanted = costs.level() not in costs.table() and os.environ.get(VARIABLE) != "0"
    if not is_wanted or call.sizes.B * call.sizes.H * call.sizes.Lq * call.sizes.Lk < FEWEST_PAIRS:
        return 1.0
    return factors(call.q.dtype)[backend]


@lru_cache(maxsize=8)
def factors(dtype: torch.dtype) -> dict[str, float]:
    """By backend, how many times as long as estimated a call takes; the shortest of a few rounds, each in turn."""
    # values do not change what is computed
    t = torch.zeros(1, HEADS, LENGTH, WIDTH, dtype=dtype)
    ways = {"blockwise": blockwise.run, "sdpa": sdpa.run, "reference": reference.run}
    least = dict.fromkeys(ways, float("inf"))
    mask = causal() & window(before=LENGTH // 8)
    start = time.perf_counter()
    with torch.no_grad():
        estimates = {}
        for name in ways:
            call = Call(t, t, t, mask=mask)
            total = blockwise.strips_of(call).total if name == "blockwise" else None
            estimates[name] = costs.estimate(name, call, total)
        # the first round warms up
        for number in range(5):
            for name, run in ways.items():
                before = time.perf_counter()
                run(Call(t, t, t, mask=mask))
                if number:
                    least[name] = min(least[name], time.perf_counter() - before)
            if number and time.perf_counter() - start > SECONDS:
                break
    return {name: least[name] / estimates[name] for name in ways}
