"""Maps, watching and the Triton kernels on a GPU: python -m benchmarks.gpu, which also writes results/gpu.json.

    python -m benchmarks.gpu [--interpret]

--interpret: run the cases of the kernels once at small sizes on the CPU, interpreted; keeps no figures.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import headwise as hw
from benchmarks import device_masks
from benchmarks.device import Row, accept_older_torch, interleaved, row
from benchmarks.machine import versions
from benchmarks.report import RESULTS

B, H, L, D = 1, 12, 8192, 64
# the definition of additive attention, measured beside the kernels, holds L · L · D numbers a head; --interpret is slow
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
    accept_older_torch()
    machine = {
        "gpu": torch.cuda.get_device_name(),
        "capability": ".".join(map(str, torch.cuda.get_device_capability())),
    }
    rows: list[Row] = []
    for measure in (_kernels, _readings, _watching, _memory, device_masks.rows):
        for found in measure():
            print("  ".join(f"{key} {value}" for key, value in found.items()), flush=True)
            rows.append(found)
        # what was measured stays, if the rest takes too long
        record = {"schema": 1, "machine": machine, "versions": {**versions(), "cuda": torch.version.cuda}, "rows": rows}
        (RESULTS / "gpu.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return 0


def _readings() -> Iterator[Row]:
    """Each reading of a map beside one forward of torch's kernel on the same q and k."""
    for dtype in (torch.bfloat16, torch.float32):
        q, k, v = (torch.randn(B, H, L, D, device="cuda", dtype=dtype) for _ in range(3))

        def sdpa(q: Tensor = q, k: Tensor = k, v: Tensor = v) -> Tensor:
            return F.scaled_dot_product_attention(q, k, v)

        readings: dict[str, Callable[[hw.AttentionMap], Any]] = {
            "entropy + received + max_logit": lambda m: (m.entropy(), m.received(), m.max_logit()),
            "one row": lambda m: m[0, 3, L // 2],
            "top 8": lambda m: m.topk(8),
            "pooled 512 x 512": lambda m: m.pooled(512, 512),
        }
        for name, read in readings.items():
            ours, theirs = interleaved(lambda q=q, k=k, read=read: read(hw.attention_map(q, k)), sdpa)
            yield row(name, f"B={B} H={H} L={L} D={D}", dtype, ours, theirs)


def _watching() -> Iterator[Row]:
    """A model of torch's own encoder layers and one of headwise layers, watched and not."""
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
            ours, theirs = interleaved(watched, lambda model=model, x=x: model(x))
        yield row(name, "6 layers B=4 L=512 E=768", torch.bfloat16, ours, theirs)


def _memory() -> Iterator[Row]:
    """The peak of extra memory of what a dense map of 51 GB would be needed for."""
    q, k = (torch.randn(1, 12, 32768, 64, device="cuda", dtype=torch.bfloat16) for _ in range(2))

    def all_readings() -> None:
        m = hw.attention_map(q, k)
        m.entropy(), m.received(), m.topk(8), m.pooled(512, 512)

    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    all_readings()
    extra = torch.cuda.max_memory_allocated() - before
    yield {"case": "lse, entropy, received, top 8, pooled", "shape": "H=12 L=32768", "extra_mib": extra // MIB}


def _kernels() -> Iterator[Row]:
    """The Triton kernels beside torch's operations in headwise, and the statistics beside one forward of SDPA too."""
    for dtype in (torch.bfloat16, torch.float32):
        name = f"B={B} H={H} L={L} D={D}"
        for case, (ours, theirs) in _statistics_cases("cuda", dtype, L).items():
            yield row(case, name, dtype, *interleaved(ours, theirs))
        for case, (ours, theirs) in _additive_cases("cuda", dtype, ADDITIVE_L).items():
            yield row(case, f"B={B} H={H} L={ADDITIVE_L} D={D}", dtype, *interleaved(ours, theirs))


def _statistics_cases(device: str, dtype: torch.dtype, length: int) -> dict[str, Case]:
    """Statistics of maps with and without a mask, by the kernels and by what stands beside them."""
    from headwise.maps import device_summary, statistics
    from headwise.ops.call import checked

    q, k, v = (torch.randn(B, H, length, D, device=device, dtype=dtype) for _ in range(3))
    masks = {"no mask": None, "causal": hw.causal(), "window of 512": hw.window(keys=512)}
    cases: dict[str, Case] = {}
    for name, mask in masks.items():

        def ours(mask: hw.Mask | None = mask) -> Any:
            return device_summary.summarize(checked(q, k, v, mask=mask))

        def torchs(mask: hw.Mask | None = mask) -> Any:
            return statistics.summarize(checked(q, k, v, mask=mask))

        cases[f"kernels' statistics, {name}, beside torch's"] = ours, torchs
        cases[f"kernels' statistics, {name}, beside SDPA"] = ours, partial(F.scaled_dot_product_attention, q, k, v)
    return cases


def _additive_cases(device: str, dtype: torch.dtype, length: int) -> dict[str, Case]:
    """Additive attention by the kernels and by `hw.additive_attention`, forward, and forward and backward."""
    from headwise.ops import reference
    from headwise.ops.call import checked
    from headwise.ops.triton_kernels.additive import attend

    q, k, v = (torch.randn(B, H, length, D, device=device, dtype=dtype, requires_grad=True) for _ in range(3))
    weight = torch.randn(H, D, device=device, dtype=dtype, requires_grad=True)

    def by_kernels() -> Tensor:
        return attend(checked(q, k, v, weight=weight, mask=hw.causal())).out

    def by_torch() -> Tensor:
        return reference.run(checked(q, k, v, weight=weight, mask=hw.causal()))

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


if __name__ == "__main__":
    sys.exit(main())
