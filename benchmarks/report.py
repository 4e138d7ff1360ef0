"""The table that is printed and the JSON that is kept."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.harness import Absent, Measured, Pair
from benchmarks.machine import Machine, versions

RESULTS = Path(__file__).parent / "results"
COLUMNS = (
    ("case", 25), ("beside", 25), ("shape", 31), ("dtype", 8), ("ours", 9), ("theirs", 9), ("quantity", 11),
    ("median", 9), ("quartiles", 16), ("target", 9), ("", 7), ("of matmul", 9), ("peak memory", 15),
)  # fmt: skip


def heading(machine: Machine) -> str:
    """What the figures below it were measured on, and the names of the columns."""
    listed = ", ".join(f"{name} {version}" for name, version in versions().items())
    return f"machine   {machine}\nversions  {listed}\n\n{_row([name for name, _ in COLUMNS])}"


def line(measured: Measured) -> str:
    """One row of the table."""
    case, quantity = measured.case, measured.case.quantity
    low, middle, high = measured.quartiles
    sign = ">=" if quantity.is_better_higher else "<="
    target = "" if case.target is None else f"{sign} {case.target:g}{quantity.unit}"
    verdict = {None: "", True: "met", False: "NOT MET"}[measured.is_met]
    return _row(
        [
            case.name, case.beside, case.shape, case.dtype,
            *(_bytes(side) if case.is_in_bytes else _time(side) for side in (measured.ours, measured.theirs)),
            quantity.name, f"{_figure(middle)}{quantity.unit}", f"{_figure(low)}..{_figure(high)}", target, verdict,
            "" if measured.share is None else f"{measured.share:.0%}", _both(measured),
        ]
    )  # fmt: skip


def line_of_absent(case: Absent) -> str:
    """One row of what could not be measured, with the reason."""
    return f"{_row([case.name, case.beside, case.shape])}  {case.reason}"


def write(
    name: str, machine: Machine, measured: Sequence[Measured], absent: Sequence[Absent] = (), folder: Path = RESULTS
) -> Path:
    """Keep the figures of one group, and what is absent from it, in <folder>/<name>.json."""
    record = {
        "schema": 2, "machine": asdict(machine), "versions": versions(), "rows": [_record(each) for each in measured],
        "absent": [asdict(each) for each in absent],
    }  # fmt: skip
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.json"
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return path


def read(name: str, folder: Path = RESULTS) -> dict[str, Any]:
    """What `write` kept of one group; FileNotFoundError where nothing is kept."""
    record: dict[str, Any] = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    return record


def _record(measured: Measured) -> dict[str, object]:
    case, (low, middle, high) = measured.case, measured.quartiles
    return {
        "case": case.name, "beside": case.beside, "shape": case.shape, "dtype": case.dtype,
        "quantity": case.quantity.name, "unit": case.quantity.unit,
        "median": _rounded(middle), "quartiles": [_rounded(low), _rounded(high)],
        "target": case.target, "is_met": measured.is_met,
        **_sides("bytes" if case.is_in_bytes else "seconds", Pair(measured.ours, measured.theirs)),
        **({} if measured.memory is None else _sides("bytes", measured.memory)),
        **({} if measured.share is None else {"share_of_matmul": _rounded(measured.share)}),
        "rounds": len(measured.pairs),
    }  # fmt: skip


def _sides(unit: str, pair: Pair) -> dict[str, float | None]:
    # a side that was not run has no figure, and JSON has no NaN
    found = {f"ours_{unit}": pair.ours, f"theirs_{unit}": pair.theirs}
    return {name: None if math.isnan(number) else _rounded(number) for name, number in found.items()}


def _both(measured: Measured) -> str:
    if measured.memory is not None:
        return " / ".join(_bytes(side) for side in measured.memory)
    return "not measured" if measured.case.is_weighed else ""


def _row(cells: list[str]) -> str:
    return "  ".join(f"{cell:{width}}" for cell, (_, width) in zip(cells, COLUMNS, strict=False)).rstrip()


def _rounded(number: float) -> float:
    return float(f"{number:.4g}")


def _figure(number: float) -> str:
    return f"{number:.2f}" if abs(number) < 10 else f"{number:.1f}"


def _time(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.4g} {unit}"
    return f"{seconds * 1e6:.4g} us"


def _bytes(number: float) -> str:
    return "not run" if math.isnan(number) else f"{_figure(number / 1e6)} MB"
