"""A script of examples/, run as a person runs it."""

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def run_script(name: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """The script's status and what it printed, with every warning an error, run from the folder above examples/."""
    command = [sys.executable, "-W", "error", EXAMPLES / name, *arguments]
    return subprocess.run(
        [str(word) for word in command], cwd=EXAMPLES.parent, capture_output=True, text=True, encoding="utf-8"
    )
