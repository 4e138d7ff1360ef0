"""Rates: what each backend's work takes on this machine, written to ops/rates.json for "auto" to choose by.

    python -m benchmarks.rates [--level avx2|avx512|default] [--anew] [--check]

Times every backend by name on calls of many sizes, and fits seconds of each feature of the work, most closely where the
backends are close to each other. Machines of one level differ: its rates are the mean over those that measured it, and
--anew keeps this one's alone. --check prints how far the kept rates are from what is measured.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

import headwise as hw
from benchmarks.levels import at_level
from benchmarks.machine import Machine, versions
from benchmarks.regret import DTYPES, timed_in_turn
from headwise.errors import BackendError
from headwise.ops import blockwise, costs
from headwise.ops.backends import choose
from headwise.ops.call import Call, Rules, checked

FILE = Path(costs.__file__).with_name("rates.json")
# batch, query heads, key/value heads and width; all but the second one for few calls only
WIDTHS = (
    (1, 2, 2, 64),
    (1, 8, 8, 64),
    (1, 6, 6, 128),
    (1, 8, 2, 64),
    (4, 8, 8, 64),
    (1, 8, 8, 16),
    (1, 12, 12, 32),
)
# queries and keys, whole vectors of keys and ragged ones; some few queries, as in decoding
LENGTHS = (
    (12, 12),
    (32, 32),
    (48, 48),
    (60, 60),
    (100, 100),
    (112, 112),
    (250, 250),
    (272, 272),
    (600, 600),
    (640, 640),
    (1300, 1300),
    (1408, 1408),
    (1, 700),
    (1, 6000),
    (20, 3000),
)
# the rules that torch's kernel does not have
RULES: tuple[Rules, ...] = ({}, {"dropout": 0.2}, {"softcap": 30.0})
# the largest call without such a rule, and with one
MOST_PAIRS, MOST_PAIRS_RULED = 1 << 24, 1 << 22
# the logarithm of the largest share of a time that a rate may explain, from nothing to all and more
BOUNDS = (-30.0, 3.0)
# how much a call counts for a backend that takes twice as long as the fastest, over one that is the fastest
FAR = 0.3


class Row(NamedTuple):
    """What a backend computed for a call, how long it took, and how much that counts for its rates."""

    work: costs.Work
    seconds: float
    weight: float


Rows = list[Row]
# the rates of every way
Ways = dict[str, list[float]]


def masks(L: int) -> dict[str, hw.Mask | None]:
    """Those that are timed; what they hide is kept with them, as it is in use."""
    return {
        "none": None,
        "causal": hw.causal(),
        "window": hw.causal() & hw.window(before=max(3, L // 7)),
        "padding": hw.lengths([max(1, 2 * L // 3)]),
    }


def calls(dtype: torch.dtype) -> Iterator[tuple[Call, list[str]]]:
    """Calls of many sizes, and the backends that can run each."""
    for (B, H, Hk, D), (Lq, Lk), threads in itertools.product(WIDTHS, LENGTHS, (1, 2)):
        if threads > (os.cpu_count() or 1) or B * H * Lq * Lk > MOST_PAIRS:
            continue
        is_rare = (B, H, Hk, D) != WIDTHS[1]
        for (name, mask), rules, has_backward in itertools.product(masks(Lk).items(), RULES, (False, True)):
            if rules and (is_rare or H * Lq * Lk > MOST_PAIRS_RULED or name in ("causal", "padding")):
                continue
            # a call with dropout is priced with its backward pass
            if (is_rare and threads == 1) or ("dropout" in rules and not has_backward):
                continue
            torch.set_num_threads(threads)
            q, k, v = (torch.randn(B, heads, length, D).to(dtype).requires_grad_(has_backward)
                       for heads, length in ((H, Lq), (Hk, Lk), (Hk, Lk)))  # fmt: skip
            call = checked(q, k, v, mask=mask, **rules)
            yield call, [name for name in costs.MEASURED if _can(call, name)]


def _can(call: Call, name: str) -> bool:
    if name == "reference" and math.prod(call.sizes) > costs.MOST_WEIGHTS:
        return False
    try:
        choose(call, name)
    except BackendError:
        return False
    return True


def measured(dtype: torch.dtype) -> dict[str, Rows]:
    """Work and seconds of every call, by way."""
    found = defaultdict(list)
    for call, names in calls(dtype):
        is_differentiated = call.q.requires_grad
        gradient = torch.randn(call.q.shape).to(dtype)

        def run(name: str, call: Call = call, gradient: Tensor = gradient) -> None:
            out = hw.attention(
                call.q, call.k, call.v, mask=call.mask, dropout=call.dropout, softcap=call.softcap, backend=name
            )
            if out.requires_grad:
                out.backward(gradient)
                call.q.grad = call.k.grad = call.v.grad = None

        with torch.set_grad_enabled(is_differentiated):
            seconds = timed_in_turn({name: lambda name=name: run(name) for name in names}, 0.015)
            for name in names:
                strips = blockwise.strips_of(call).total if name == "blockwise" else None
                weight = max(FAR, FAR ** (seconds[name] / min(seconds.values()) - 1))
                found[costs.way_of(name, call)].append(Row(costs.work_of(name, call, strips), seconds[name], weight))
    return found


def rates_of(by_way: dict[str, Rows]) -> Ways:
    """The rates of every way.

    Those of any length are fitted to short sequences too, and those of few queries begin with what any call takes.
    """
    short = {way.removesuffix(f" {costs.SHORT}"): rows for way, rows in by_way.items() if way.endswith(costs.SHORT)}
    all_lengths = {
        way: rows + short.get(way, [])
        for way, rows in by_way.items()
        if not way.endswith((costs.FEW_QUERIES, costs.SHORT))
    }
    found = {way: fitted(rows) for way, rows in all_lengths.items()}
    few = {
        way: fitted(rows, found[way.removesuffix(f" {costs.FEW_QUERIES}")][0])
        for way, rows in by_way.items()
        if way.endswith(costs.FEW_QUERIES)
    }
    own = {f"{way} {costs.SHORT}": fitted(rows) for way, rows in short.items()}
    return dict(sorted((found | few | own).items()))


def fitted(rows: Rows, once: float | None = None) -> list[float]:
    """The rates, none below 0, at which the logarithms of estimates are nearest to those of the times.

    A call counts by how near this backend is to its fastest one, and what is far off counts no more than linearly.
    once: seconds of one call, None: to be found.
    """
    work = torch.tensor([row.work for row in rows], dtype=torch.float64)
    seconds = torch.tensor([row.seconds for row in rows], dtype=torch.float64)
    weights = torch.tensor([row.weight for row in rows], dtype=torch.float64)
    # each feature alone would take the whole time at a rate of 1
    scale = (work / seconds[:, None]).amax(dim=0)
    used = scale > 0
    known = torch.zeros_like(seconds)
    if once is not None:
        used[0], known = False, once / seconds
    shares = work[:, used] / scale[used] / seconds[:, None]
    logs = torch.full((int(used.sum()),), -1.0, dtype=torch.float64, requires_grad=True)
    search = torch.optim.LBFGS([logs], max_iter=500, line_search_fn="strong_wolfe", tolerance_change=1e-12)

    def loss() -> Tensor:
        search.zero_grad()
        errors = (known + shares @ logs.clamp(*BOUNDS).exp()).log()
        total = (weights * F.huber_loss(errors, torch.zeros_like(errors), reduction="none", delta=0.1)).sum()
        total.backward()
        return total

    search.step(loss)
    found = torch.zeros_like(scale)
    found[used] = logs.detach().clamp(*BOUNDS).exp() / scale[used]
    # what is nowhere a thousandth of the time is left out
    found[(work * found / seconds[:, None]).amax(dim=0) < 1e-3] = 0.0
    if once is not None:
        found[0] = once
    return [float(f"{rate:.4g}") for rate in found]


def mean(kept: Ways, found: Ways, machines: int) -> Ways:
    """The rates of each way over one machine more. machines: how many have those that are kept."""
    means = dict(found)
    for way, before in kept.items():
        here = found.get(way, before)
        means[way] = [float(f"{(machines * a + b) / (machines + 1):.4g}") for a, b in zip(before, here, strict=True)]
    return dict(sorted(means.items()))


def main() -> None:
    """Measure this level and write its rates beside those of the others."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rates", description=__doc__.partition("\n")[0])
    parser.add_argument("--level", choices=("default", "avx2", "avx512"), help="the highest level that is used")
    parser.add_argument("--anew", action="store_true", help="forget the machines that measured this level before")
    parser.add_argument("--check", action="store_true", help="print how far the kept rates are; nothing is written")
    options = parser.parse_args()
    if options.level:
        at_level(options.level, "benchmarks.rates")
    known = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {"levels": {}}
    by_dtype: dict[str, Ways] = {}
    for name, dtype in DTYPES.items():
        found = measured(dtype)
        by_dtype[name] = {} if options.check else rates_of(found)
        for way, rows in sorted(found.items()):
            own = costs.rates(dtype, way) if options.check else by_dtype[name][way]
            ratios = sorted(costs.seconds_of(own, row.work) / row.seconds for row in rows)
            low, middle, high = statistics.quantiles(ratios, n=4)
            print(f"{costs.level():<12} {name:<9} {way:<42} {len(rows):>4} calls, estimate / time "
                  f"{low:.2f} {middle:.2f} {high:.2f}, {ratios[0]:.2f}..{ratios[-1]:.2f}", flush=True)  # fmt: skip
    if not options.check:
        measured_by = known.setdefault("measured", {})
        machines = [] if options.anew else measured_by.get(costs.level(), [])
        if machines:
            kept = known["levels"][costs.level()]
            by_dtype = {name: mean(kept[name], found, len(machines)) for name, found in by_dtype.items()}
        known["features"] = costs.FEATURES
        measured_by[costs.level()] = [*machines, {"machine": str(Machine.here()), "versions": versions()}]
        known["levels"][costs.level()] = by_dtype
        FILE.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
