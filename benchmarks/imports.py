"""What starting costs, in fresh processes: the import with a layer, and the help of the command line."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

from benchmarks.harness import EXTRA_MILLISECONDS, OUR_SECONDS, Case, Cases, Quantity, WrongNumbersError

WITH_LAYER = "import torch, headwise; headwise.MultiHeadAttention(8, 2)"


def imports() -> Cases:
    """Whole processes, from start to exit."""
    with_layer, bare = python("-c", WITH_LAYER), python("-c", "import torch")
    yield process("import and build a layer", "import torch", with_layer, bare, EXTRA_MILLISECONDS, target=100)
    with_help, nothing = python("-m", "headwise", "--help"), python("-c", "pass")
    yield process("headwise --help", "python -c pass", with_help, nothing, OUR_SECONDS, target=0.4)


def process(
    name: str, beside: str, ours: Callable[[], None], theirs: Callable[[], None], quantity: Quantity, *, target: float
) -> Case:
    """Two processes; both must end well."""

    def check() -> None:
        ours()
        theirs()

    return Case(name, beside, "a fresh process", "", ours, theirs, check, quantity, target)


def python(*arguments: str) -> Callable[[], None]:
    """Runs this Python with these arguments in a new process; WrongNumbersError where it fails."""

    def run() -> None:
        done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
        if done.returncode:
            said = (done.stderr.strip().splitlines() or ["nothing said"])[-1]
            raise WrongNumbersError(f"python {' '.join(arguments)} ended with status {done.returncode}: {said}")

    return run
