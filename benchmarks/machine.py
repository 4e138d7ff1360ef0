"""Machine: what a figure was measured on, without the name of the host or a path."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path

import torch

import headwise

# the instructions that matrix products and softmax gain from
FLAGS = ("avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_bf16", "asimd", "bf16", "sve")


@dataclass(frozen=True)
class Machine:
    """threads: how many torch uses. kernels: which set of its kernels torch chose. load: of the minute before."""

    cpu: str
    cores: int
    threads: int
    flags: tuple[str, ...]
    kernels: str
    load: float | None

    @staticmethod
    def here() -> Machine:
        """This machine, with the threads that torch has now."""
        info = _first_processor()
        owned = info.get("flags", info.get("Features", "")).split()
        return Machine(
            cpu=info.get("model name", "") or platform.processor() or platform.machine(),
            cores=os.cpu_count() or 1,
            threads=torch.get_num_threads(),
            flags=tuple(flag for flag in FLAGS if flag in owned),
            kernels=torch.backends.cpu.get_cpu_capability(),
            load=round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        )

    def __str__(self) -> str:
        busy = "" if self.load is None else f", load {self.load} before"
        flags = " ".join(self.flags) or "no flags known"
        return f"{self.cpu}, {self.cores} cores, {self.threads} threads, {flags}, torch kernels {self.kernels}{busy}"


def versions() -> dict[str, str]:
    """The versions that a figure depends on."""
    return {"python": platform.python_version(), "torch": torch.__version__, "headwise": headwise.__version__}


def _first_processor() -> dict[str, str]:
    listing = Path("/proc/cpuinfo")
    if not listing.is_file():
        return {}
    rows = (line.partition(":") for line in listing.read_text(encoding="utf-8").partition("\n\n")[0].splitlines())
    return {name.strip(): value.strip() for name, _, value in rows}
