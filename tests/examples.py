"""Running what the documents show: docstring examples, Python blocks and console blocks."""

import doctest
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import torch

import headwise
from tests.arrow import SRC
from tests.fences import Fence

ROOT = SRC.parents[1]
FLAGS = doctest.ELLIPSIS
# an example may use these two without importing them
GIVEN = {"torch": torch, "hw": headwise}


@dataclass(frozen=True)
class Outcome:
    """How many examples were run, and a report of those that printed something else."""

    attempted: int
    report: str


def run_doctest(test: doctest.DocTest) -> Outcome:
    """Run the examples of one docstring or block; its names stay in test.globs."""
    torch.manual_seed(0)
    lines: list[str] = []
    result = doctest.DocTestRunner(optionflags=FLAGS).run(test, out=lines.append, clear_globs=False)
    return Outcome(result.attempted, "".join(lines) if result.failed else "")


def docstring_outcomes(module: ModuleType) -> dict[str, Outcome]:
    """The outcome for each object of the module whose docstring has examples, by its full name."""
    finder = doctest.DocTestFinder(exclude_empty=True)
    tests = finder.find(module, extraglobs=GIVEN)
    return {test.name: run_doctest(test) for test in tests if test.examples}


def run_python_fence(fence: Fence, name: str, names: dict[str, object]) -> Outcome:
    """Run a Python block, with or without prompts, in a namespace that goes on from block to block."""
    if ">>> " in fence.text:
        test = doctest.DocTestParser().get_doctest(fence.text, names, name, name, fence.line - 1)
        outcome = run_doctest(test)
        names.update(test.globs)
        return outcome
    # as many empty lines above as in the document, so that an error names the document's line
    exec(compile("\n" * (fence.line - 1) + fence.text, name, "exec"), names)
    return Outcome(1, "")


def commands(fence: Fence) -> list[tuple[str, str]]:
    """Each command of a console or shell block, and the output that is shown under it."""
    found: list[tuple[str, str]] = []
    lines = fence.text.replace("\\\n", "").splitlines(keepends=True)
    for line in lines:
        if fence.language == "console" and not line.startswith("$ "):
            command, shown = found.pop()
            found.append((command, shown + line))
        elif command := line.removeprefix("$ ").partition(" # ")[0].strip():
            found.append((command, ""))
    return [(command, shown) for command, shown in found if not command.startswith("#")]


def status(fence: Fence) -> int:
    """The exit status of the commands of a block: 0, or what the comment above it says."""
    found = re.fullmatch(r"exit status (\d)", fence.note)
    return int(found[1]) if found else 0


def run_command(command: str, shown: str, cwd: Path, *, status: int = 0) -> Outcome:
    """Run a headwise command, or check that what another command names exists."""
    first, *words = shlex.split(command)
    if first in ("headwise", "python"):
        files = [word for word in words[:1] if word.endswith(".py")]
        missing = [file for file in files if not (ROOT / file).is_file()]
        # a script under examples/ has a test of its own
        return _run(first, words, shown, cwd, status) if not files else Outcome(1, _report(command, "files", missing))
    if first == "make":
        makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
        missing = [word for word in words if "=" not in word and f"\n{word}:" not in makefile]
        return Outcome(1, _report(command, "targets", missing))
    known = first in ("pip", "git", "cd")
    return Outcome(0, "" if known else f"{command}: tests/examples.py does not know how to check {first}\n")


def _report(command: str, kind: str, missing: list[str]) -> str:
    return f"{command}: there are no such {kind}: {', '.join(missing)}\n" if missing else ""


def _run(first: str, words: list[str], shown: str, cwd: Path, status: int) -> Outcome:
    start = ["-c", "from headwise.cli import main; main()"] if first == "headwise" else []
    environment = {**os.environ, "COLUMNS": "120", "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        [sys.executable, *start, *words], cwd=cwd, env=environment, capture_output=True, text=True, encoding="utf-8"
    )
    printed = "".join(f"{line.rstrip()}\n" for line in done.stdout.splitlines())
    wanted = "".join(f"{line.rstrip()}\n" for line in shown.splitlines())
    agrees = not shown or doctest.OutputChecker().check_output(wanted, printed, FLAGS)
    if done.returncode == status and agrees:
        return Outcome(1, "")
    return Outcome(1, f"{first} {shlex.join(words)}: status {done.returncode}\n{printed}{done.stderr}wanted:\n{wanted}")
