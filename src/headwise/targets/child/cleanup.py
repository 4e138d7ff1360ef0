"""Cleanup: stops a child and all that it started, and leaves nothing behind."""

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
    """Whether a process has ended; one that has stays known to the system, so that its number is not given again."""
    if process.returncode is not None or not hasattr(os, "waitid"):
        return process.poll() is not None
    try:
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return process.poll() is not None


def stop(process: subprocess.Popen[bytes], mark: str) -> int:
    """Kill a child, its group, and what bears its mark although it has left the group; its exit status."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    status = process.wait()
    # what is found may be forking while it is killed
    for _ in range(100):
        found = list(_marked(mark))
        if not found:
            break
        for number in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(number, signal.SIGKILL)
        time.sleep(0.01)
    return status


def _marked(mark: str) -> Iterator[int]:
    """The processes that were given the mark, where the system can tell (Linux); ones that only wait to be reaped do
    not count."""
    wanted = f"{MARK}={mark}".encode()
    for folder in PROCESSES.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                yield int(folder.name)


def remove(folder: Path) -> None:
    """Remove a temporary folder, even where the code took away the right to."""
    for each, _, _ in os.walk(folder):
        with contextlib.suppress(OSError):
            Path(each).chmod(stat.S_IRWXU)
    shutil.rmtree(folder, ignore_errors=True)
