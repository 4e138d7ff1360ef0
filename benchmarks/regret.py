"""What the choice of "auto" costs: its time over that of the best backend by name, and over torch's own call.

    python -m benchmarks.regret [--quick] [--only TEXT] [--level avx2|avx512|default] [--device cuda]

A grid of calls; in each one "auto", every backend that can run it and F.scaled_dot_product_attention with a ready mask
take turns in one process, and lower quartiles are compared. What comes out above a bound is timed again for three times
as long, and the second figure is kept. --level runs the grid where torch and oneDNN use that level and no higher one;
--device cuda runs it on a GPU, where each block of calls waits for the device once.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

import headwise as hw
from benchmarks.device import accept_older_torch
from benchmarks.levels import at_level
from benchmarks.machine import Machine, versions
from benchmarks.report import RESULTS
from headwise.errors import BackendError
from headwise.ops import costs

HEADS, WIDTH = 8, 64
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
# and "tensor": a dense one, given as a bool tensor
MASKS = ("none", "causal", "window", "padding", "documents")
BACKENDS = ("sdpa", "blockwise", "reference")
# the bounds: of regret, and of torch's own call over "auto" from 128 tokens on, at 16, and at 16 with backward
WORST_REGRET, LEAST, LEAST_SMALL, LEAST_SMALL_BACKWARD = 1.10, 0.95, 0.70, 0.85
# a round of one side lasts this long at least; a side this many times as slow as the first one is timed once
ROUND_SECONDS, SLOW = 4e-3, 6.0
# how long each side is timed
SECONDS = {"cpu": 0.12, "cuda": 0.04}
# torch's own call with dropout has no fused kernel, and the definition of 8192 tokens holds every weight
MOST_DENSE_PAIRS = 1 << 27

Run = Callable[[], object]


@dataclass(frozen=True)
class Place:
    """One call of the grid. queries: None: as many as keys."""

    dtype: str
    L: int
    mask: str = "none"
    batch: int = 1
    heads: int = HEADS
    kv_heads: int = HEADS
    queries: int | None = None
    dropout: float = 0.0
    has_backward: bool = False
    threads: int = 2

    def __str__(self) -> str:
        parts = [self.dtype, f"B={self.batch} H={self.heads}/{self.kv_heads} L={self.queries or self.L}/{self.L}"]
        parts += [self.mask, f"dropout {self.dropout}" if self.dropout else ""]
        parts += ["forward and backward" if self.has_backward else "forward", f"{self.threads} threads"]
        return ", ".join(part for part in parts if part)


@dataclass(frozen=True)
class Figures:
    """Seconds of every side of a call, lower quartiles."""

    place: Place
    seconds: dict[str, float]
    chosen: str

    @property
    def best(self) -> float:
        """Of the fastest backend by name."""
        return min(self.seconds[name] for name in BACKENDS if name in self.seconds)

    @property
    def regret(self) -> float:
        """What "auto" takes over the fastest backend by name."""
        return self.seconds["auto"] / self.best

    @property
    def gain(self) -> float | None:
        """What torch's own call takes over "auto"; None: it was not run."""
        return self.seconds["torch"] / self.seconds["auto"] if "torch" in self.seconds else None

    @property
    def is_doubtful(self) -> bool:
        """Whether it is above a bound, so that it should be timed for longer."""
        return self.regret > WORST_REGRET or (self.gain is not None and self.gain < self.least)

    @property
    def least(self) -> float:
        """What torch's own call should take over "auto" at least."""
        if self.place.L >= 128:
            return LEAST
        return LEAST_SMALL_BACKWARD if self.place.has_backward else LEAST_SMALL


def grid(device: str = "cpu") -> Iterator[Place]:
    """All calls, those of one length and dtype together; on a GPU fewer, and no threads."""
    is_cpu = device == "cpu"
    dtypes = list(DTYPES) if is_cpu else ["float32", "bfloat16"]
    for dtype, L in itertools.product(dtypes, (16, 64, 128, 256, 512, 1024, 2048) if is_cpu else (16, 128, 512, 2048)):
        for mask, has_backward in itertools.product(MASKS, (False, True)):
            yield Place(dtype, L, mask, has_backward=has_backward)
    for dtype, mask in itertools.product(dtypes, MASKS):
        yield Place(dtype, 8192, mask, heads=2, kv_heads=2)
        yield Place(dtype, 2048, mask, queries=1, kv_heads=2)
    for L, mask, has_backward in itertools.product((64, 128, 512, 2048), ("none", "padding", "window"), (False, True)):
        yield Place("float32", L, mask, dropout=0.1, has_backward=has_backward)
    for dtype, L, has_backward in itertools.product(dtypes, (16, 128, 512), (False, True)):
        yield Place(dtype, L, "tensor", has_backward=has_backward)
    for L, mask in itertools.product((128, 512, 2048), MASKS):
        yield Place("float32", L, mask, kv_heads=2)
    for L, mask in itertools.product((16, 128, 512), MASKS):
        yield Place("float32", L, mask, batch=4)
    if not is_cpu:
        return
    for dtype, L, mask in itertools.product(
        ("float32", "bfloat16"), (16, 128, 512, 2048), ("none", "causal", "window")
    ):
        yield Place(dtype, L, mask, threads=1)


def mask_of(place: Place, device: str) -> tuple[hw.Mask | Tensor | None, Tensor | None, bool]:
    """What headwise is given; for torch's own call, ready made: the same as bool, and whether it is called causal."""
    if place.mask == "tensor":
        rows = torch.arange(place.L - (place.queries or place.L), place.L)
        dense = (rows[:, None] >= torch.arange(place.L)).to(device)
        return dense, dense, False
    mask, is_causal = _mask(place)
    if mask is None or place.mask == "causal":
        return mask, None, is_causal
    Lq, Lk = place.queries or place.L, place.L
    return mask.to(device), mask.allowed(Lq, Lk).expand(place.batch, 1, Lq, Lk).to(device), is_causal


def _mask(place: Place) -> tuple[hw.Mask | None, bool]:
    B, Lq, Lk = place.batch, place.queries or place.L, place.L
    if place.mask == "none":
        return None, False
    if place.mask == "causal":
        # one query at the end sees all
        return hw.causal(), Lq == Lk
    if place.mask == "window":
        return hw.causal() & hw.window(before=max(2, min(128, Lk // 8))), False
    if place.mask == "padding":
        return hw.keys(torch.arange(Lk) < torch.linspace(Lk // 2, Lk // 2 + Lk // 4, B).long()[:, None]), False
    ids = torch.arange(Lk) // max(2, Lk // 8)
    return hw.documents(ids[Lk - Lq :].expand(B, -1).contiguous(), ids.expand(B, -1).contiguous()), False


def sides(place: Place, device: str = "cpu") -> tuple[dict[str, Run], str]:
    """The calls to be timed by name, and the backend that "auto" takes."""
    dtype, Lq = DTYPES[place.dtype], place.queries or place.L
    generator = torch.Generator().manual_seed(0)
    sizes = ((place.heads, Lq), (place.kv_heads, place.L), (place.kv_heads, place.L))
    q, k, v = (
        torch.randn(place.batch, heads, length, WIDTH, generator=generator)
        .to(device, dtype)
        .requires_grad_(place.has_backward)
        for heads, length in sizes
    )
    mask, dense, is_causal = mask_of(place, device)
    gradient = torch.randn(q.shape, generator=generator).to(device, dtype)

    def timed(compute: Callable[[], Tensor]) -> Run:
        def forward() -> object:
            with torch.no_grad():
                return compute()

        def both() -> object:
            out = compute()
            out.backward(gradient)
            q.grad = k.grad = v.grad = None
            return out

        return both if place.has_backward else forward

    def ours(name: str) -> Run:
        return timed(lambda: hw.attention(q, k, v, mask=mask, dropout=place.dropout, backend=name))

    def theirs() -> Tensor:
        return F.scaled_dot_product_attention(
            q, k, v, attn_mask=dense, is_causal=is_causal, dropout_p=place.dropout, enable_gqa=place.kv_heads < HEADS
        )

    reasons = hw.backends(q, k, v, mask=mask, dropout=place.dropout)
    found = {"auto": ours("auto")}
    pairs = place.batch * place.heads * Lq * place.L
    for name in BACKENDS:
        if name == "reference" and pairs > MOST_DENSE_PAIRS:
            continue
        try:
            with torch.no_grad():
                hw.backends(q, k, v, mask=mask, dropout=place.dropout, backend=name)
        except BackendError:
            continue
        found[name] = ours(name)
    if not place.dropout or pairs <= MOST_DENSE_PAIRS:
        found["torch"] = timed(theirs)
    return found, reasons.chosen


def timed_in_turn(calls: dict[str, Run], seconds: float) -> dict[str, float]:
    """Lower quartiles of the time of each call; each round has a block of all of them."""
    once = {}
    for name, call in calls.items():
        call()
        once[name] = _block(call, 1)
    least = min(once.values())
    left = {name: call for name, call in calls.items() if once[name] <= SLOW * least or name == "auto"}
    counts = {name: max(1, int(ROUND_SECONDS / once[name])) for name in left}
    rounds: dict[str, list[float]] = {name: [] for name in left}
    order, shuffle = list(left), random.Random(0).shuffle
    start = time.perf_counter()
    while time.perf_counter() - start < seconds * len(left) or min(map(len, rounds.values())) < 3:
        for name in order:
            rounds[name].append(_block(left[name], counts[name]))
        # what ran before leaves its tensors in the caches, so that no side always follows the same one
        shuffle(order)
    kept = {name: statistics.quantiles(found, n=4, method="inclusive")[0] for name, found in rounds.items()}
    return {name: kept.get(name, once[name]) for name in calls}


def _block(call: Run, count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        call()
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return (time.perf_counter() - start) / count


def measured(place: Place, seconds: float, device: str = "cpu") -> Figures:
    """The figures of a call, taken again for longer where they are doubtful."""
    torch.set_num_threads(place.threads)
    calls, chosen = sides(place, device)
    found = Figures(place, timed_in_turn(calls, seconds), chosen)
    return Figures(place, timed_in_turn(calls, 3 * seconds), chosen) if found.is_doubtful else found


def summary(found: list[Figures]) -> dict[str, float]:
    """The figures that have a bound."""
    regrets = sorted(each.regret for each in found)
    large = [each.gain for each in found if each.gain is not None and each.place.L >= 128]
    small = {
        has_backward: [each.gain for each in found if each.gain is not None and each.place.L == 16
                       and each.place.has_backward is has_backward]
        for has_backward in (False, True)
    }  # fmt: skip
    return {
        "calls": len(found),
        "regret, median": statistics.median(regrets),
        "regret above 1.10, share": sum(each > WORST_REGRET for each in regrets) / len(regrets),
        "torch / auto at L >= 128 below 0.95, share": sum(each < LEAST for each in large) / max(1, len(large)),
        "torch / auto at L >= 128, least": min(large, default=float("nan")),
        "torch / auto at L = 16, forward, least": min(small[False], default=float("nan")),
        "torch / auto at L = 16, forward and backward, least": min(small[True], default=float("nan")),
    }


def main() -> None:
    """Measure the grid, print what is above a bound and the summary, and keep all figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.regret", description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a short look; nothing is written")
    parser.add_argument("--only", default="", help="calls whose line has this text; nothing is written")
    parser.add_argument("--level", choices=("default", "avx2", "avx512"), help="the highest level that is used")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where the calls run")
    options = parser.parse_args()
    if options.level:
        at_level(options.level, "benchmarks.regret")
    if options.device == "cuda":
        accept_older_torch()
    machine, found = Machine.here(), []
    print(f"machine   {machine}\n", flush=True)
    for place in grid(options.device):
        if options.only in str(place):
            found.append(measured(place, 0.03 if options.quick else SECONDS[options.device], options.device))
            if found[-1].is_doubtful or options.only:
                print(_line(found[-1]), flush=True)
    print()
    for name, figure in summary(found).items():
        print(f"{name:<52} {figure:.3f}")
    if not options.quick and not options.only:
        level = "-".join(costs.level().split()[1:]) if options.device == "cpu" else options.device
        rows = [asdict(each.place) | {"chosen": each.chosen, "seconds": each.seconds} for each in found]
        record = {
            "schema": 1,
            "machine": ({} if options.device == "cpu" else {"gpu": torch.cuda.get_device_name()}) | asdict(machine),
            "versions": versions(),
            "summary": summary(found),
            "rows": rows,
        }
        (RESULTS / f"regret-{level}.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def _line(found: Figures) -> str:
    sides = "  ".join(f"{name} {1e6 * seconds:.0f}" for name, seconds in found.seconds.items())
    gain = "" if found.gain is None else f"torch/auto {found.gain:.2f}"
    return f"{found.place!s:<84} {found.chosen:<10} regret {found.regret:.2f}  {gain}  us: {sides}"


if __name__ == "__main__":
    main()
