"""Command: the command line, the environment and the request of a child."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["FOLDER", "MARK", "command", "environment", "started_in", "write_request"]

# variables: the working folder of the user, and the mark of the processes that a child starts
FOLDER = "HEADWISE_STARTED_IN"
MARK = "HEADWISE_CHILD"
MAIN = Path(__file__).with_name("main.py")
# variables that a child inherits: paths of programs and libraries, and the locale
PASSED = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT")
ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


def started_in() -> Path:
    """The working folder of the user: in a child, that of the process that started it."""
    return Path(os.environ.get(FOLDER) or Path.cwd())


def command(request: Path) -> list[str]:
    """The command line of a child: Python without user settings, and without bytecode beside user files."""
    return [sys.executable, "-I", "-B", "-X", "utf8", str(MAIN), str(request)]


def environment(home: Path, mark: str) -> dict[str, str]:
    """The variables of a child. home: its temporary folder; mark: identifies its processes."""
    passed = {name: os.environ[name] for name in PASSED if name in os.environ}
    variables = {
        "HOME": str(home),
        "TMPDIR": str(home),
        FOLDER: str(started_in()),
        MARK: mark,
        # its arguments are on the CPU, so the modules must be too
        "CUDA_VISIBLE_DEVICES": "",
        "HIP_VISIBLE_DEVICES": "",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        # scripted and compiled code runs in eager mode, line by line
        "PYTORCH_JIT": "0",
        "TORCHDYNAMO_DISABLE": "1",
    }
    return passed | variables | dict.fromkeys(ONE_THREAD, "1")


def write_request(file: Path, entry: str, request: Mapping[str, Any], **limits: int | str) -> None:
    """Write the request of a child to a file. limits: read by name in main.py."""
    folders = [folder for folder in sys.path if folder] + ([str(Path.cwd())] if "" in sys.path else [])
    caches = not sys.dont_write_bytecode
    asked = {"path": folders, "entry": entry, "request": dict(request), "caches": caches, **limits}
    file.write_text(json.dumps(asked), encoding="utf-8")
