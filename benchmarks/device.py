"""Times on a CUDA device, of two sides in turn, with the torch that is there."""

from __future__ import annotations

import inspect
import statistics
from collections.abc import Callable
from typing import Any

import torch

ROUNDS = 20
Row = dict[str, Any]


def accept_older_torch() -> None:
    """Let torch.compile take the options of torch 2.13 that an older one lacks: a machine with a GPU may have 2.11."""
    lacking = {"recompile_limit", "isolate_recompiles"} - set(inspect.signature(torch.compile).parameters)
    if not lacking:
        return
    compile_ = torch.compile
    torch._dynamo.config.recompile_limit = torch._dynamo.config.accumulated_recompile_limit = 1 << 10

    def compiled(*args: Any, **options: Any) -> Any:
        return compile_(*args, **{name: value for name, value in options.items() if name not in lacking})

    torch.compile = compiled


def row(case: str, shape: str, dtype: torch.dtype, ours: float, theirs: float) -> Row:
    """One line of results/gpu.json."""
    return {
        "case": case,
        "shape": shape,
        "dtype": str(dtype).removeprefix("torch."),
        "ours_ms": float(f"{ours:.4g}"),
        "beside_ms": float(f"{theirs:.4g}"),
        "ours/beside": round(ours / theirs, 2),
    }


def interleaved(ours: Callable[[], Any], theirs: Callable[[], Any]) -> tuple[float, float]:
    """Median milliseconds of both sides, run in turn."""
    times: tuple[list[float], list[float]] = ([], [])
    for round_ in range(ROUNDS + 3):
        for side, run in zip(times, (ours, theirs), strict=True):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            run()
            end.record()
            torch.cuda.synchronize()
            if round_ >= 3:
                side.append(start.elapsed_time(end))
    return statistics.median(times[0]), statistics.median(times[1])
