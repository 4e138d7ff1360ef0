"""Calibration: on a machine that the table of rates does not have, one short measurement of each backend."""

from __future__ import annotations

import math
import os
import threading
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
HEADS, LENGTH, WIDTH, SECONDS, ROUNDS = 4, 256, 64, 0.06, 5


_lock = threading.Lock()


def factor(backend: str, call: Call) -> float:
    """What the estimates of a backend are multiplied by here: 1.0 where the table has this machine.

    1.0 also where a mode listens to what is computed, or torch's kernels are switched off; and with dropout, whose
    drops would depend on a measurement.
    """
    is_wanted = costs.level() not in costs.table() and os.environ.get(VARIABLE) != "0"
    if not is_wanted or call.dropout or math.prod(call.sizes) < FEWEST_PAIRS:
        return 1.0
    if (
        torch._C._len_torch_dispatch_stack()
        or torch._C._len_torch_function_stack()
        or not torch._C._get_flash_sdp_enabled()
        or torch.are_deterministic_algorithms_enabled()
    ):
        return 1.0
    with _lock:
        return factors(call.q.dtype)[backend]


@lru_cache(maxsize=8)
def factors(dtype: torch.dtype) -> dict[str, float]:
    """By backend, how many times as long as estimated a call takes; the shortest of a few rounds, each in turn."""
    # values do not change what is computed
    t = torch.zeros(1, HEADS, LENGTH, WIDTH, dtype=dtype, device="cpu")
    mask = causal() & window(before=LENGTH // 8)
    ways = {"blockwise": blockwise.run, "sdpa": sdpa.run, "reference": reference.run}
    least = dict.fromkeys(ways, math.inf)
    start = time.perf_counter()
    with torch.no_grad(), torch.autocast("cpu", enabled=False):
        strips = blockwise.strips_of(Call(t, t, t, mask=mask)).total
        # the first round warms up
        for number in range(ROUNDS):
            for name, run in ways.items():
                before = time.perf_counter()
                run(Call(t, t, t, mask=mask))
                if number:
                    least[name] = min(least[name], time.perf_counter() - before)
            if number and time.perf_counter() - start > SECONDS:
                break
        call = Call(t, t, t, mask=mask)
        return {
            name: least[name] / costs.estimate(name, call, strips if name == "blockwise" else None) for name in ways
        }
