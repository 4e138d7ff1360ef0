"""Maps, watching and the Triton kernels on a GPU: python -m benchmarks.gpu, which also writes results/gpu.json.

    python -m benchmarks.gpu [--interpret]

--interpret: run the cases of the kernels once at small sizes on the CPU, interpreted; keeps no figures.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import headwise as hw
from benchmarks.machine import versions
from benchmarks.report import RESULTS

ROUNDS = 20
B, H, L, D = 1, 12, 8192, 64
# the definition of additive attention, which runs on a GPU today, holds L · L · D numbers a head; --interpret is slow
ADDITIVE_L, SMALL_L = 1024, 9
MIB = 1 << 20
# what is measured, and what stands beside it
Case = tuple[Callable[[], Any], Callable[[], Any]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print and keep every figure; 1 without a CUDA device."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description="figures of a CUDA device")
    parser.add_argument(
        "--interpret", action="store_true", help="the kernels' cases on the CPU, at small sizes, untimed"
    )
    if parser.parse_args(arguments).interpret:
        return _interpreted()
    if not torch.cuda.is_available():
        print("benchmarks.gpu needs a CUDA device, and torch sees none: run it where one is", file=sys.stderr)
        return 1
    machine = {
        "gpu": torch.cuda.get_device_name(),
        "capability": ".".join(map(str, torch.cuda.get_device_capability())),
    }
    rows = [row for measure in (_readings, _watching, _memory, _kernels) for row in measure()]
    for row in rows:
        print("  ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    record = {"schema": 1, "machine": machine, "versions": {**versions(), "cuda": torch.version.cuda}, "rows": rows}
    (RESULTS / "gpu.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return 0


def _readings() -> list[dict[str, Any]]:
    """Each reading of a map beside one forward of torch's kernel on the same q and k."""
    rows = []
    for dtype in (torch.bfloat16, torch.float32):
        q, k, v = (torch.randn(B, H, L, D, device="cuda", dtype=dtype) for _ in range(3))
        lse = hw.attention_map(q, k).lse

        def sdpa(q: Tensor = q, k: Tensor = k, v: Tensor = v) -> Tensor:
            return F.scaled_dot_product_attention(q, k, v)

        readings: dict[str, Callable[[hw.AttentionMap], Any]] = {
            "entropy + received + max_logit": lambda m: (m.entropy(), m.received(), m.max_logit()),
            "one row": lambda m: m[0, 3, L // 2],
            "top 8": lambda m: m.topk(8),
            "pooled 512 x 512": lambda m: m.pooled(512, 512),
        }
        for name, read in readings.items():
            ours, theirs = _interleaved(
                lambda q=q, k=k, read=read, lse=lse: read(hw.attention_map(q, k, lse=lse)), sdpa
            )
            rows.append(_row(name, f"B={B} H={H} L={L} D={D}", dtype, ours, theirs))
    return rows


def _watching() -> list[dict[str, Any]]:
    """A model of torch's own encoder layers and one of headwise layers, watched and not."""
    rows = []
    for name, layer in (
        ("watched nn.TransformerEncoderLayer", nn.TransformerEncoderLayer(768, 12, 3072, batch_first=True)),
        ("watched hw.MultiHeadAttention", hw.MultiHeadAttention(768, 12)),
    ):
        model = nn.Sequential(*[layer.eval().cuda().bfloat16()] * 6)
        x = torch.randn(4, 512, 768, device="cuda", dtype=torch.bfloat16)

        def watched(model: nn.Module = model, x: Tensor = x) -> None:
            with hw.watch(model):
                model(x)

        with torch.no_grad():
            ours, theirs = _interleaved(watched, lambda model=model, x=x: model(x))
        rows.append(_row(name, "6 layers B=4 L=512 E=768", torch.bfloat16, ours, theirs))
    return rows


def _memory() -> list[dict[str, Any]]:
    """The peak of extra memory of what a dense map of 51 GB would be needed for."""
    q, k = (torch.randn(1, 12, 32768, 64, device="cuda", dtype=torch.bfloat16) for _ in range(2))

    def all_readings() -> None:
        m = hw.attention_map(q, k)
        m.entropy(), m.received(), m.topk(8), m.pooled(512, 512)

    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    all_readings()
    extra = torch.cuda.max_memory_allocated() - before
    return [{"case": "lse, entropy, received, top 8, pooled", "shape": "H=12 L=32768", "extra_mib": extra // MIB}]


def _kernels() -> list[dict[str, Any]]:
    """The Triton kernels beside torch's operations in headwise, and the statistics beside one forward of SDPA too."""
    rows = []
    for dtype in (torch.bfloat16, torch.float32):
        name = f"B={B} H={H} L={L} D={D}"
        for case, (ours, theirs) in _statistics_cases("cuda", dtype, L).items():
            rows.append(_row(case, name, dtype, *_interleaved(ours, theirs)))
        for case, (ours, theirs) in _additive_cases("cuda", dtype, ADDITIVE_L).items():
            rows.append(_row(case, f"B={B} H={H} L={ADDITIVE_L} D={D}", dtype, *_interleaved(ours, theirs)))
    return rows


def _statistics_cases(device: str, dtype: torch.dtype, length: int) -> dict[str, Case]:
    """Statistics of maps with and without a mask, by the kernels and by what stands beside them."""
    from headwise.maps.device_summary import keep_summary

    q, k, v = (torch.randn(B, H, length, D, device=device, dtype=dtype) for _ in range(3))
    masks = {"no mask": None, "causal": hw.causal(), "window of 512": hw.window(keys=512)}

    def read(mask: hw.Mask | None, *, by_kernels: bool) -> tuple[Tensor, ...]:
        m = hw.attention_map(q, k, mask=mask)
        if by_kernels:
            keep_summary(m)
        return m.lse, m.entropy(), m.received(), m.max_logit()

    cases: dict[str, Case] = {}
    for name, mask in masks.items():
        ours = partial(read, mask, by_kernels=True)
        cases[f"kernels' statistics, {name}, beside torch's"] = ours, partial(read, mask, by_kernels=False)
        cases[f"kernels' statistics, {name}, beside SDPA"] = ours, partial(F.scaled_dot_product_attention, q, k, v)
    return cases


def _additive_cases(device: str, dtype: torch.dtype, length: int) -> dict[str, Case]:
    """Additive attention by the kernels and by `hw.additive_attention`, forward, and forward and backward."""
    from headwise.ops.call import checked
    from headwise.ops.triton_kernels.additive import attend

    q, k, v = (torch.randn(B, H, length, D, device=device, dtype=dtype, requires_grad=True) for _ in range(3))
    weight = torch.randn(H, D, device=device, dtype=dtype, requires_grad=True)

    def by_kernels() -> Tensor:
        return attend(checked(q, k, v, weight=weight, mask=hw.causal())).out

    def by_torch() -> Tensor:
        return hw.additive_attention(q, k, v, weight, mask=hw.causal())

    def without_gradients(run: Callable[[], Tensor]) -> Tensor:
        with torch.no_grad():
            return run()

    def with_gradients(run: Callable[[], Tensor]) -> tuple[Tensor, ...]:
        return torch.autograd.grad(run().sum(), (q, k, v, weight))

    return {
        f"kernels' additive attention, causal, {name}, beside torch's": (
            partial(run, by_kernels),
            partial(run, by_torch),
        )
        for name, run in (("forward", without_gradients), ("forward and backward", with_gradients))
    }


def _interpreted() -> int:
    """Run the cases of the kernels once, on the CPU; 1 where triton is missing or compiled kernels are imported."""
    os.environ["TRITON_INTERPRET"] = "1"
    from headwise.ops.call import checked
    from headwise.ops.triton_kernels import why_no_statistics

    q = torch.zeros(1, 1, 1, 1)
    if reason := why_no_statistics(checked(q, q, q)):
        print(f"benchmarks.gpu cannot interpret the kernels: {reason}", file=sys.stderr)
        return 1
    cases = _statistics_cases("cpu", torch.float32, SMALL_L) | _additive_cases("cpu", torch.float32, SMALL_L)
    for name, (ours, theirs) in cases.items():
        for side in (ours, theirs):
            side()
        print(f"{name}: runs interpreted at L={SMALL_L}", flush=True)
    return 0


def _row(case: str, shape: str, dtype: torch.dtype, ours: float, theirs: float) -> dict[str, Any]:
    return {
        "case": case,
        "shape": shape,
        "dtype": str(dtype).removeprefix("torch."),
        "ours_ms": float(f"{ours:.4g}"),
        "beside_ms": float(f"{theirs:.4g}"),
        "ours/beside": round(ours / theirs, 2),
    }


def _interleaved(ours: Callable[[], Any], theirs: Callable[[], Any]) -> tuple[float, float]:
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


if __name__ == "__main__":
    sys.exit(main())
