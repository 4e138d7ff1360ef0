"""Main: what the child process runs, by itself: limits, then one function, then its answer on a pipe.

It is run as a file and imports nothing but Python's own modules, so that the limits stand before anything else runs.
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

# a file that a child writes may hold so many bytes
FILE_BYTES = 256 << 20
# shared libraries take address space, but no memory of their own; those of CUDA take most
SHARED_BYTES = 64 << 30
# Linux: be killed when the process that started this one dies
PR_SET_PDEATHSIG = 1


def main() -> None:
    """Read the request named on the command line, run it, answer, and end without waiting for anything."""
    file = Path(sys.argv[1])
    asked = json.loads(file.read_text(encoding="utf-8"))
    file.unlink()
    own, pipe = os.getpid(), int(asked["pipe"])
    _limit(int(asked["seconds"]), int(asked["megabytes"]))
    _die_with_parent()
    sys.argv[1:] = []
    sys.path[:] = asked["path"]
    said = _answer(str(asked["entry"]), asked["request"], caches=bool(asked["caches"]))
    if os.getpid() != own:
        # the code forked, and this copy of it must not answer too
        os._exit(0)
    for stream in (sys.stdout, sys.stderr):
        # the code may have closed them, or put something else in their place
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    _write(pipe, said, str(asked["mark"]), int(asked["answer_bytes"]))
    os._exit(0)


def _answer(entry: str, request: dict[str, Any], *, caches: bool) -> bytes:
    """The answer as JSON: {"answer": …}, {"refused": key, "values": …} or {"raised": kind, "text": …}."""
    module, _, name = entry.partition(":")
    try:
        function = getattr(_loaded(module, caches=caches), name)
        return json.dumps({"answer": function(request)}).encode()
    except (Exception, SystemExit, KeyboardInterrupt, GeneratorExit) as error:  # noqa: BLE001  said by the parent
        with contextlib.suppress(Exception):
            traceback.print_exc()
        return json.dumps(_raised(error)).encode()


def _loaded(module: str, *, caches: bool) -> ModuleType:
    """A module of headwise, with torch and all that it imports, which stay as long as the process.

    caches: whether they may be written as bytecode, as the process that asks writes its own; nothing of the code that
    is run next is. They are left out of what garbage is looked for in, too.
    """
    is_forbidden, sys.dont_write_bytecode = sys.dont_write_bytecode, not caches
    gc.disable()
    try:
        with warnings.catch_warnings():
            # torch does without numpy, and so do the commands
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
    except Exception as second:  # noqa: BLE001  an error of the person's may fail even to speak
        text = f"({type(second).__name__})"
    key, values = getattr(error, "key", None), getattr(error, "values", None)
    if isinstance(error, ValueError) and isinstance(key, str) and isinstance(values, dict):
        return {"refused": key, "values": {str(name): _plain(value) for name, value in values.items()}, "text": text}
    return {"raised": kind, "text": text}


def _plain(value: object) -> object:
    return value if isinstance(value, int | float | str) else str(value)


def _write(pipe: int, said: bytes, mark: str, most: int) -> None:
    if len(said) > most:
        said = json.dumps({"large": len(said)}).encode()
    rest = memoryview(f"\n{mark} {len(said)}\n".encode() + said)
    # the code may have closed the pipe: then there is no answer, which the parent can say
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
        # a limit that is lower already stays, and one that the system does not know is left out
        if which is not None:
            _, most = resource.getrlimit(which)
            is_free = most == resource.RLIM_INFINITY or limit < most
            own = limit if is_free else most
            # of CPU time the lower limit is told by a signal of its own, the upper one kills
            upper = own + 1 if name == "RLIMIT_CPU" and is_free else own
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(which, (own, upper))


def _die_with_parent() -> None:
    if sys.platform == "linux":
        import ctypes
        import signal

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


if __name__ == "__main__":
    main()
