"""The table of benchmarks: python -m benchmarks --only forward --quick --threads 2."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from benchmarks import decode, effects, imports, kernels, layer, lengths, maps, memory, peers, plot, statistics
from benchmarks.harness import (
    BRIEF,
    QUICK,
    STEADY,
    THOROUGH,
    Absent,
    Case,
    Cases,
    Effort,
    Measured,
    NotMeasuredError,
    WrongNumbersError,
    measure,
)
from benchmarks.machine import Machine
from benchmarks.report import heading, line, line_of_absent, write


class Group(NamedTuple):
    """The cases of one subject, and how long each is timed."""

    cases: Callable[[], Cases]
    effort: Effort = THOROUGH


GROUPS: dict[str, Group] = {
    "forward": Group(layer.forward),
    "training": Group(layer.training),
    "written": Group(layer.written),
    "overhead": Group(layer.overhead),
    "decode": Group(decode.decode),
    "imports": Group(imports.imports),
    "kernels": Group(kernels.kernels),
    "maps": Group(maps.maps),
    "effects": Group(effects.effects, STEADY),
    "statistics": Group(statistics.statistics, BRIEF),
    "memory": Group(memory.memory),
    "peers": Group(peers.peers, BRIEF),
    "lengths": Group(lengths.lengths, BRIEF),
}


@dataclass
class Found:
    """What became of the cases of a group."""

    measured: list[Measured] = field(default_factory=list)
    absent: list[Absent] = field(default_factory=list)
    wrong: int = 0
    too_long: int = 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the groups that were asked for; 1 if a case was refused, whatever the targets say."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", choices=GROUPS, action="append", metavar="NAME", help=f"one of {', '.join(GROUPS)}")
    parser.add_argument("--quick", action="store_true", help="a short look at short cases; nothing is written")
    parser.add_argument("--plot", action="store_true", help="only draw the picture of the lengths measured last")
    parser.add_argument("--threads", type=int, metavar="N", help="threads for torch, if not its own choice")
    options = parser.parse_args(arguments)
    if options.plot:
        return _draw()
    if options.threads is not None:
        if options.threads < 1:
            parser.error(f"--threads counts threads, so it must be 1 or more; got {options.threads}")
        torch.set_num_threads(options.threads)
    machine = Machine.here()
    print(heading(machine), flush=True)
    refused = 0
    for name in options.only or GROUPS:
        group = GROUPS[name]
        found = _group(group.cases(), QUICK if options.quick else group.effort, is_quick=options.quick)
        refused += found.wrong
        if not options.quick:
            write(name, machine, found.measured, found.absent)
    return 1 if refused else 0


def _group(cases: Cases, effort: Effort, *, is_quick: bool) -> Found:
    found = Found()
    for case in cases:
        if isinstance(case, Absent):
            _leave_out(case, found)
        elif is_quick and case.is_long:
            found.too_long += 1
        else:
            _case(case, effort, found)
    if found.too_long:
        print(f"... and {found.too_long} that take long, which a quick look leaves out", flush=True)
    return found


def _case(case: Case, effort: Effort, found: Found) -> None:
    try:
        found.measured.append(measure(case, effort))
        print(line(found.measured[-1]), flush=True)
    except WrongNumbersError as error:
        found.wrong += 1
        print(f"{case.name}, {case.beside}, {case.shape}: not timed, {error}", flush=True)
    except NotMeasuredError as error:
        _leave_out(Absent(case.name, case.beside, case.shape, f"not measured: {error}"), found)


def _leave_out(case: Absent, found: Found) -> None:
    found.absent.append(case)
    print(line_of_absent(case), flush=True)


def _draw() -> int:
    try:
        print(plot.draw())
    except plot.NothingToDrawError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
