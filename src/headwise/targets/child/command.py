"""Command: the command, the environment and the request with which a child begins."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["FOLDER", "MARK", "command", "environment", "started_in", "write_request"]

# the variables by which a child knows where the person is, and by which what it leaves running is known
FOLDER = "HEADWISE_STARTED_IN"
MARK = "HEADWISE_CHILD"
MAIN = Path(__file__).with_name("main.py")
# what a person's own variables may tell the child: where things are installed, and how letters are written
PASSED = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT")
ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


def started_in() -> Path:
    """The folder where the person is: in a child, that of the process that started it; else the current one."""
    return Path(os.environ.get(FOLDER) or Path.cwd())


def command(request: Path) -> list[str]:
    """What to run: Python without the person's own settings, and without writing caches beside their files."""
    return [sys.executable, "-I", "-B", "-X", "utf8", str(MAIN), str(request)]


def environment(home: Path, mark: str) -> dict[str, str]:
    """The variables of a child. home: its temporary folder; mark: the word by which its processes are known."""
    passed = {name: os.environ[name] for name in PASSED if name in os.environ}
    made = {
        "HOME": str(home),
        "TMPDIR": str(home),
        FOLDER: str(started_in()),
        MARK: mark,
        # the arguments it is called with lie in main memory, and so must what it builds
        "CUDA_VISIBLE_DEVICES": "",
        "HIP_VISIBLE_DEVICES": "",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        # what is scripted or compiled runs as it was written, line by line
        "PYTORCH_JIT": "0",
        "TORCHDYNAMO_DISABLE": "1",
    }
    return passed | made | dict.fromkeys(ONE_THREAD, "1")


def write_request(file: Path, entry: str, request: Mapping[str, Any], **limits: int | str) -> None:
    """Write what the child is to do. limits: read by name in main.py."""
    folders = [folder for folder in sys.path if folder] + ([str(Path.cwd())] if "" in sys.path else [])
    caches = not sys.dont_write_bytecode
    asked = {"path": folders, "entry": entry, "request": dict(request), "caches": caches, **limits}
    file.write_text(json.dumps(asked), encoding="utf-8")
