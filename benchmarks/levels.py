"""Levels: the same command again, where torch and oneDNN use no wider vectors than asked for."""

from __future__ import annotations

import os
import subprocess
import sys

ONEDNN = {"default": "SSE41", "avx2": "AVX2", "avx512": "ALL"}


def at_level(level: str, module: str) -> None:
    """Run `python -m module` with the same arguments at a level, and exit with it; nothing where it is that already."""
    wanted = {"ATEN_CPU_CAPABILITY": level, "ONEDNN_MAX_CPU_ISA": ONEDNN[level]}
    if any(os.environ.get(name) != value for name, value in wanted.items()):
        sys.exit(subprocess.call([sys.executable, "-m", module, *sys.argv[1:]], env=os.environ | wanted))
