"""The table that is printed and the JSON that is kept."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.harness import Measured
from benchmarks.machine import Machine, versions

RESULTS = Path(__file__).parent / "results"
COLUMNS = (
    ("case", 23), ("beside", 25), ("shape", 31), ("dtype", 8), ("ours", 9), ("theirs", 9), ("quantity", 11),
    ("median", 9), ("quartiles", 16), ("target", 8), ("", 7),
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
            case.name, case.beside, case.shape, case.dtype, _time(measured.ours), _time(measured.theirs),
            quantity.name, f"{_figure(middle)}{quantity.unit}", f"{_figure(low)}..{_figure(high)}", target, verdict,
        ]
    )  # fmt: skip


def write(name: str, machine: Machine, measured: Sequence[Measured], folder: Path = RESULTS) -> Path:
    """Keep the figures of one group in <folder>/<name>.json."""
    record = {
        "schema": 1, "machine": asdict(machine), "versions": versions(), "rows": [_record(each) for each in measured]
    }  # fmt: skip
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.json"
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return path


def _record(measured: Measured) -> dict[str, object]:
    case, (low, middle, high) = measured.case, measured.quartiles
    return {
        "case": case.name, "beside": case.beside, "shape": case.shape, "dtype": case.dtype,
        "quantity": case.quantity.name, "unit": case.quantity.unit,
        "median": _rounded(middle), "quartiles": [_rounded(low), _rounded(high)],
        "target": case.target, "is_met": measured.is_met,
        "ours_seconds": _rounded(measured.ours), "theirs_seconds": _rounded(measured.theirs),
        "rounds": len(measured.pairs),
    }  # fmt: skip


def _row(cells: list[str]) -> str:
    return "  ".join(f"{cell:{width}}" for cell, (_, width) in zip(cells, COLUMNS, strict=True)).rstrip()


def _rounded(number: float) -> float:
    return float(f"{number:.4g}")


def _figure(number: float) -> str:
    return f"{number:.2f}" if abs(number) < 10 else f"{number:.1f}"


def _time(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.4g} {unit}"
    return f"{seconds * 1e6:.4g} us"
