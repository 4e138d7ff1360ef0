"""Attention on several ranks beside one process, measured: python -m benchmarks.ranks [--quick | --counts].

Processes of one thread each on gloo. A figure is the CPU seconds of all ranks over those of one process. The latter
are the mean of as many processes that each compute the whole, in turn with the former: ranks that share a core or a
cache slow each other down on both sides alike. Memory is the peak of the busiest rank over that of one process, beyond
what was held before the step. What ranks share is counted besides.
"""

from __future__ import annotations

import argparse
import datetime
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
import torch.distributed as dist
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.parallel import parallelize_module

import headwise as hw
from benchmarks.machine import Machine, versions
from benchmarks.peak import peak_extra
from benchmarks.shares import counts
from headwise.masks import Mask

FILE = Path(__file__).parent / "results" / "ranks.json"
HEADS, WIDTH, ROUNDS, TIMEOUT = 8, 64, 7, 300.0
# a layer of two samples, wide enough to be split
LAYER_HEADS = 16
# what is freed is given back at once, which takes time, so that memory is what is held
MALLOC = {"MALLOC_MMAP_THRESHOLD_": str(1 << 18)}
# the largest distance of outputs from those of one process
CLOSE = 1e-5

Step = Callable[[], Tensor]
T = TypeVar("T")


@dataclass(frozen=True)
class Case:
    """One figure: what is run on so many ranks, of how many tokens, and the most that it should be."""

    name: str
    ranks: int
    length: int
    measure: str
    target: float
    mask: str = ""
    layout: str = "auto"


CASES = (
    *(Case("spread over one rank", 1, L, "seconds", 1.03, "causal", "zigzag") for L in (512, 2048, 4096)),
    Case("causal, zigzag", 2, 4096, "seconds", 1.08, "causal", "zigzag"),
    Case("causal, zigzag", 4, 4096, "seconds", 1.15, "causal", "zigzag"),
    Case("window of length/16", 4, 16384, "bytes", 0.35, "window"),
    Case("tensor parallel layer of 1,024", 4, 512, "heads", 1.20),
)


class Share(NamedTuple):
    """What one rank measured, by rounds: its own part, and the whole.

    reduced: the all-reduces of a step.
    """

    part: list[float]
    one: list[float]
    reduced: int = 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure every case, print them, and write the file."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ranks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round of short cases; nothing is written")
    parser.add_argument("--counts", action="store_true", help="only what is counted, into the figures of last time")
    options = parser.parse_args(arguments)
    if options.counts:
        counted_anew(json.loads(FILE.read_text(encoding="utf-8")))
        return 0
    table = Table("case", "ranks", "tokens", "all ranks / one", "quartiles", "must")
    rows = []
    for case in CASES:
        if options.quick and case.length > 512:
            continue
        low, middle, high, reduced = figures(case, 1 if options.quick else ROUNDS)
        told = case.name + (f", {reduced} all-reduces" if reduced else "")
        table.add_row(
            told, str(case.ranks), str(case.length), f"{middle:.2f}", f"{low:.2f}-{high:.2f}", f"{case.target}"
        )
        rows.append({**asdict(case), "ratio": middle, "quartiles": [low, high], "all_reduces": reduced})
    Console().print(table)
    if not options.quick:
        counted_anew({"machine": {**asdict(Machine.here()), "threads": 1}, "versions": versions(), "cases": rows})
    return 0


def counted_anew(found: dict[str, Any]) -> None:
    """Count what ranks share, print it, and write it with these figures."""
    table = Table("count", "largest at", "ratio", "must")
    shared = list(counts(on_processes))
    for each in shared:
        table.add_row(each.name, each.at, f"{each.ratio:.3f}", f"{each.target:.3f}")
    Console().print(table)
    found["counts"] = [asdict(each) for each in shared]
    FILE.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def figures(case: Case, rounds: int) -> tuple[float, float, float, int]:
    """The lower quartile, the median and the upper quartile of all ranks over one, and the all-reduces of a step."""
    with environment(MALLOC if case.measure == "bytes" else {}):
        shares = on_processes(case.ranks, TASKS[case.measure], case, rounds)
    parts, wholes = (list(zip(*each, strict=True)) for each in zip(*(share[:2] for share in shares), strict=True))
    together = max if case.measure == "bytes" else sum
    ratios = [together(part) / statistics.mean(whole) for part, whole in zip(parts, wholes, strict=True)]
    low, middle, high = statistics.quantiles(ratios * 2 if len(ratios) == 1 else ratios, n=4, method="inclusive")
    return low, middle, high, shares[0].reduced


@contextmanager
def environment(more: dict[str, str]) -> Iterator[None]:
    """More variables for the processes that are started here."""
    os.environ.update(more)
    try:
        yield
    finally:
        for name in more:
            del os.environ[name]


def mask_of(case: Case) -> Mask:
    return hw.causal() if case.mask == "causal" else hw.causal() & hw.window(before=case.length // 16)


def seconds(rank: int, case: Case, rounds: int) -> Share:
    """CPU seconds of forward and backward of attention, on this rank, and on rank 0 of the whole."""
    spread = hw.distributed.spread(case.length, dist.group.WORLD, mask=mask_of(case), layout=case.layout)
    part, whole = steps(case, spread)
    check(rank, spread.whole(part().detach(), dim=2), whole)
    return in_turn(part, whole, rounds)


def peak_bytes(_: int, case: Case, rounds: int) -> Share:
    """The peak memory of the same in bytes, with q, k, v and the gradient of the outputs, which the step makes."""
    spread = hw.distributed.spread(case.length, dist.group.WORLD, mask=mask_of(case), layout=case.layout)
    part, whole = steps(case, spread, is_fresh=True)
    part(), whole()
    found = Share([], [])
    for _ in range(min(rounds, 3)):
        dist.barrier()
        found.part.append(peak_extra(part))
        dist.barrier()
        found.one.append(peak_extra(whole))
    return found


def heads(rank: int, case: Case, rounds: int) -> Share:
    """CPU seconds of a layer's step whose heads are split over the ranks, and of the whole layer on rank 0."""
    torch.manual_seed(0)
    E = LAYER_HEADS * WIDTH
    layers = [hw.MultiHeadAttention(E, LAYER_HEADS) for _ in range(2)]
    layers[1].load_state_dict(layers[0].state_dict())
    mesh = init_device_mesh("cpu", (case.ranks,))
    split = torch.nn.ModuleList([layers[0]])
    parallelize_module(split, mesh, hw.distributed.plan(split))
    x = torch.randn(2, case.length, E)

    def step(layer: torch.nn.Module) -> Tensor:
        given = x.detach().requires_grad_()
        out: Tensor = layer(given)
        out.sum().backward()
        layer.zero_grad()
        return out

    check(rank, step(split[0]).detach(), lambda: step(layers[1]))
    with CommDebugMode() as heard:
        step(split[0])
    found = in_turn(lambda: step(split[0]), lambda: step(layers[1]), rounds)
    return found._replace(reduced=heard.get_total_counts())


def steps(case: Case, spread: hw.distributed.Spread, *, is_fresh: bool = False) -> tuple[Step, Step]:
    """Forward and backward of this rank's tokens, and of all. is_fresh: whether each makes its tensors anew."""
    mask, shape = mask_of(case), (1, HEADS, case.length, WIDTH)

    def copies(of: Sequence[Tensor]) -> list[Tensor]:
        return [torch.ones(t.shape) if is_fresh else t for t in of]

    def step(tensors: Sequence[Tensor], attend: Callable[..., Tensor], **given: Any) -> Tensor:
        *inputs, ahead = copies(tensors)
        inputs = [t.detach().requires_grad_() for t in inputs]
        out = attend(*inputs, mask=mask, **given)
        torch.autograd.grad(out, inputs, ahead)
        return out

    generator = torch.Generator().manual_seed(0)
    # what is made anew needs sizes only
    whole = [torch.empty(shape, device="meta") if is_fresh else torch.randn(shape, generator=generator) for _ in "qkvg"]
    here = [t[:, :, : len(spread.tokens)] if is_fresh else spread.local(t, dim=2) for t in whole]
    return (
        lambda: step(here, hw.distributed.attention, spread=spread),
        lambda: step(whole, hw.attention),
    )


def check(rank: int, found: Tensor, whole: Step) -> None:
    """Refuse to measure what does not give the outputs of one process."""
    if rank == 0:
        far = (found - whole().detach()).abs().max().item()
        if far > CLOSE:
            raise ValueError(f"outputs of all ranks are {far:.1e} from those of one process: not measured")


def in_turn(part: Step, whole: Step, rounds: int) -> Share:
    """The CPU seconds of this rank's step, and of the whole, in turn."""
    found = Share([], [])
    for number in range(rounds + 1):
        dist.barrier()
        start = time.process_time()
        part()
        dist.barrier()
        middle = time.process_time()
        whole()
        end = time.process_time()
        # the first round warms up
        if number:
            found.part.append(middle - start)
            found.one.append(end - middle)
    return found


TASKS = {"seconds": seconds, "bytes": peak_bytes, "heads": heads}


def on_processes(ranks: int, task: Callable[..., T], *args: Any) -> list[T]:
    """task(rank, *args) on so many processes of one gloo group."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        pipes = [context.Pipe(duplex=False) for _ in range(ranks)]
        started = [
            context.Process(target=_run, args=(pipe[1], rank, ranks, f"{folder}/store", task, args))
            for rank, pipe in enumerate(pipes)
        ]
        for process, (_, writes) in zip(started, pipes, strict=True):
            process.start()
            writes.close()
        try:
            return [reads.recv() for reads, _ in pipes]
        finally:
            for process in started:
                process.kill()


def _run(pipe: Connection, rank: int, ranks: int, store: str, task: Callable[..., Any], args: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", rank=rank, world_size=ranks, store=dist.FileStore(store, ranks),
        timeout=datetime.timedelta(seconds=TIMEOUT),
    )  # fmt: skip
    pipe.send(task(rank, *args))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
