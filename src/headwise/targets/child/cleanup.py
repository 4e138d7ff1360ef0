"""Cleanup: stops a child with all processes that it started, and removes its folder."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from headwise.targets.child.command import MARK

__all__ = ["has_ended", "remove", "stop"]

PROCESSES = Path("/proc")


def has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether a process has ended; it is not reaped, so that its number is not reused."""
    if process.returncode is not None or not hasattr(os, "waitid"):
        return process.poll() is not None
    try:
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return process.poll() is not None


def stop(process: subprocess.Popen[bytes], mark: str) -> int:
    """Kill a child, its process group, and marked processes outside of the group; the exit status of the child."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    status = process.wait()
    # marked processes may fork while they are killed
    for _ in range(100):
        marked = list(_marked(mark))
        if not marked:
            break
        for number in marked:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(number, signal.SIGKILL)
        time.sleep(0.01)
    return status


def _marked(mark: str) -> Iterator[int]:
    """The processes with the mark in their environment, without zombies; none where the system has no /proc."""
    wanted = f"{MARK}={mark}".encode()
    for folder in PROCESSES.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                yield int(folder.name)


def remove(folder: Path) -> None:
    """Remove a temporary folder, even where the code changed its permissions."""
    for path, _, _ in os.walk(folder):
        with contextlib.suppress(OSError):
            Path(path).chmod(stat.S_IRWXU)
    shutil.rmtree(folder, ignore_errors=True)
