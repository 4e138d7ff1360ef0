"""Main: the program of the child process: it sets limits, runs one function, and writes the answer to a pipe.

It runs as a file and imports only the standard library, so that the limits hold before anything else runs.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import sys
import traceback
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["main"]

# the most bytes in a file that a child writes
FILE_BYTES = 256 << 20
# address space of shared libraries, which take no private memory; those of CUDA take most
SHARED_BYTES = 64 << 30
# Linux: be killed when the process that started this one dies
PR_SET_PDEATHSIG = 1


def main() -> None:
    """Run the request of the command line, write the answer, and exit without waiting for threads."""
    file = Path(sys.argv[1])
    asked = json.loads(file.read_text(encoding="utf-8"))
    file.unlink()
    process, pipe = os.getpid(), int(asked["pipe"])
    _limit(int(asked["seconds"]), int(asked["megabytes"]))
    _die_with_parent()
    sys.argv[1:] = []
    sys.path[:] = asked["path"]
    answer = _answer(str(asked["entry"]), asked["request"], caches=bool(asked["caches"]))
    if os.getpid() != process:
        # user code forked, and this copy must not answer too
        os._exit(0)
    for stream in (sys.stdout, sys.stderr):
        # user code may have closed or replaced them
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    _write(pipe, answer, str(asked["mark"]), int(asked["answer_bytes"]))
    os._exit(0)


def _answer(entry: str, request: dict[str, Any], *, caches: bool) -> bytes:
    """The answer as JSON: {"answer": …}, {"refused": key, "values": …} or {"raised": kind, "text": …}."""
    module, _, name = entry.partition(":")
    try:
        function = getattr(_loaded(module, caches=caches), name)
        return json.dumps({"answer": function(request)}).encode()
    except (Exception, SystemExit, KeyboardInterrupt, GeneratorExit) as error:  # noqa: BLE001  the parent reports it
        with contextlib.suppress(Exception):
            traceback.print_exc()
        return json.dumps(_raised(error)).encode()


def _loaded(module: str, *, caches: bool) -> ModuleType:
    """A module of headwise, imported with torch, and excluded from garbage collection.

    caches: whether these imports may write bytecode, as the parent process does; user code never does.
    """
    is_forbidden, sys.dont_write_bytecode = sys.dont_write_bytecode, not caches
    gc.disable()
    try:
        with warnings.catch_warnings():
            # torch and the commands work without numpy
            warnings.filterwarnings("ignore", message="Failed to initialize NumPy", category=UserWarning)
            return importlib.import_module(module)
    finally:
        gc.freeze()
        gc.enable()
        sys.dont_write_bytecode = is_forbidden


def _raised(error: BaseException) -> dict[str, Any]:
    kind = type(error).__name__
    try:
        text = str(error)
    except Exception as second:  # noqa: BLE001  str() of a user error may raise
        text = f"({type(second).__name__})"
    key, values = getattr(error, "key", None), getattr(error, "values", None)
    if isinstance(error, ValueError) and isinstance(key, str) and isinstance(values, dict):
        return {"refused": key, "values": {str(name): _plain(value) for name, value in values.items()}, "text": text}
    return {"raised": kind, "text": text}


def _plain(value: object) -> object:
    return value if isinstance(value, int | float | str) else str(value)


def _write(pipe: int, answer: bytes, mark: str, most: int) -> None:
    if len(answer) > most:
        answer = json.dumps({"large": len(answer)}).encode()
    rest = memoryview(f"\n{mark} {len(answer)}\n".encode() + answer)
    # user code may have closed the pipe: the parent then reports that there is no answer
    with contextlib.suppress(OSError):
        while rest:
            rest = rest[os.write(pipe, rest) :]


def _limit(seconds: int, megabytes: int) -> None:
    try:
        import resource
    except ImportError:
        # not on Windows
        return
    wanted = {
        "RLIMIT_CPU": seconds + 1,
        "RLIMIT_FSIZE": FILE_BYTES,
        "RLIMIT_CORE": 0,
        "RLIMIT_DATA": megabytes << 20,
        "RLIMIT_AS": (megabytes << 20) + SHARED_BYTES,
    }
    for name, limit in wanted.items():
        which = getattr(resource, name, None)
        # a lower limit stays, and one that the system does not have is left out
        if which is not None:
            _, most = resource.getrlimit(which)
            is_free = most == resource.RLIM_INFINITY or limit < most
            soft = limit if is_free else most
            # at the soft limit of CPU time SIGXCPU is sent, at the hard one SIGKILL
            hard = soft + 1 if name == "RLIMIT_CPU" and is_free else soft
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(which, (soft, hard))


def _die_with_parent() -> None:
    if sys.platform == "linux":
        import ctypes
        import signal

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


if __name__ == "__main__":
    main()
