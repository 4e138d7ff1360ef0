"""The table of benchmarks: python -m benchmarks --only forward --quick --threads 2."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence

import torch

from benchmarks import decode, imports, layer
from benchmarks.harness import QUICK, THOROUGH, Case, Effort, Measured, WrongNumbersError, measure
from benchmarks.machine import Machine
from benchmarks.report import heading, line, write

GROUPS: dict[str, Callable[[], Iterator[Case]]] = {
    "forward": layer.forward,
    "training": layer.training,
    "written": layer.written,
    "overhead": layer.overhead,
    "decode": decode.decode,
    "imports": imports.imports,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the groups that were asked for; 1 if a case was refused, whatever the targets say."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", choices=GROUPS, action="append", metavar="NAME", help=f"one of {', '.join(GROUPS)}")
    parser.add_argument("--quick", action="store_true", help="a short look at every case; nothing is written")
    parser.add_argument("--threads", type=int, metavar="N", help="threads for torch, if not its own choice")
    options = parser.parse_args(arguments)
    if options.threads is not None:
        if options.threads < 1:
            parser.error(f"--threads counts threads, so it must be 1 or more; got {options.threads}")
        torch.set_num_threads(options.threads)
    machine = Machine.here()
    print(heading(machine), flush=True)
    refused = 0
    for name in options.only or GROUPS:
        measured, wrong = _group(GROUPS[name](), QUICK if options.quick else THOROUGH)
        refused += wrong
        if not options.quick:
            write(name, machine, measured)
    return 1 if refused else 0


def _group(cases: Iterator[Case], effort: Effort) -> tuple[list[Measured], int]:
    measured, wrong = [], 0
    for case in cases:
        try:
            measured.append(measure(case, effort))
            print(line(measured[-1]), flush=True)
        except WrongNumbersError as error:
            wrong += 1
            print(f"{case.name}, {case.shape}: not timed, {error}", flush=True)
    return measured, wrong


if __name__ == "__main__":
    sys.exit(main())
