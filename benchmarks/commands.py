"""CPU seconds of each command and of refusals, the child's among them, beside those of `import torch` in the same run.

    python -m benchmarks.commands [--rounds 5]

Prints the least of the rounds, absolute and as a multiple of `python -c "import torch"`, whose rounds stand between.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from benchmarks.machine import Machine

ROOT = Path(__file__).resolve().parents[1]
TEXTBOOK = f"{ROOT}/tests/diagnosis/hosts/plain.py:MultiHeadAttention"
SENTENCE = "The animal didn't cross the street because it was too tired."
COMMANDS = {
    "trace": ("trace", TEXTBOOK),
    "doctor": ("doctor", TEXTBOOK),
    "steps": ("steps", TEXTBOOK, "-o", "steps.html", "--force"),
    "look": ("look", SENTENCE, "-o", "look.html", "--force"),
    "trace, class misspelt": ("trace", f"{TEXTBOOK}s"),
    "doctor, class misspelt": ("doctor", f"{TEXTBOOK}s"),
    "steps, class misspelt": ("steps", f"{TEXTBOOK}s", "-o", "steps.html", "--force"),
    "look, no such layer": ("look", SENTENCE, "--layer", "99", "-o", "look.html", "--force"),
    "plot, no such file": ("plot", "none.safetensors", "-o", "plot.svg"),
    "convert, no such name": ("convert", "none.pt", "--to", "torsh"),
}


def cpu_seconds(command: list[str], folder: str) -> tuple[float, float]:
    """CPU seconds of a command with all that it starts, and seconds of the clock."""
    import resource

    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    after, stop = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime, stop - start


def main() -> None:
    """Measure every command and print the table."""
    parser = argparse.ArgumentParser(description="CPU seconds of the commands")
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    commands = {"import torch": [sys.executable, "-c", "import torch"]}
    commands |= {name: [sys.executable, "-m", "headwise", *words] for name, words in COMMANDS.items()}
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(rounds):
            for name, command in commands.items():
                times[name].append(cpu_seconds(command, folder))
    unit = min(times["import torch"])[0]
    print(f"{Machine.here()}; torch {torch.__version__}; least of {rounds}")
    print(f"{'':24}{'CPU s':>8}{'× torch':>9}{'clock s':>9}")
    for name, measured in times.items():
        cpu, clock = min(measured)
        print(f"{name:24}{cpu:8.2f}{cpu / unit:9.2f}{clock:9.2f}")


if __name__ == "__main__":
    main()
