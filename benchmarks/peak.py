"""Peak memory of one call, as the system counts this process, so that every library is seen."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable
from pathlib import Path

PROCESS = Path("/proc/self")


def why_not() -> str:
    """Why peak memory cannot be read here; "" where it can."""
    if not sys.platform.startswith("linux"):
        return f"peak memory is read from Linux's /proc, and this is {sys.platform}"
    try:
        _forget_peak()
    except OSError as error:
        return f"the peak of this process cannot be set back: {error.strerror}"
    return "" if _status("VmHWM") else "/proc/self/status does not say VmHWM"


def peak_extra(run: Callable[[], object]) -> int:
    """The most bytes that the process held during run(), beyond what it held before.

    What run() returns is let go afterwards. Memory that a library keeps from an earlier call does not count: run it
    once before.
    """
    gc.collect()
    _give_back()
    _forget_peak()
    before = _status("VmRSS")
    run()
    return max(0, _status("VmHWM") - before)


def _give_back() -> None:
    """Return what the allocator keeps for later, so that it is counted when it is used again."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    # musl has none, and keeps little
    if trim is not None:
        trim(0)


def _forget_peak() -> None:
    # proc(5): 5 sets the peak back to what is held now
    (PROCESS / "clear_refs").write_text("5", encoding="ascii")


def _status(name: str) -> int:
    """A line of the process's status, in bytes; 0 where it is missing."""
    for row in (PROCESS / "status").read_text(encoding="ascii", errors="replace").splitlines():
        key, _, value = row.partition(":")
        if key == name:
            return int(value.split()[0]) * 1024
    return 0
