"""The picture of time and memory over the length, from the figures that were kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.lengths import WINDOW
from benchmarks.report import RESULTS, read
from headwise.wording import say


class NothingToDrawError(Exception):
    """There are no figures to draw, or nothing to draw them with; the message says what to do."""


class Curve(NamedTuple):
    """One line of the picture: whose side of which rows it shows."""

    name: str
    case: str
    beside: str
    side: str
    color: str
    dashes: str


CURVES = (
    Curve("eager", "forward", "eager", "theirs", "#999999", "-"),
    Curve("SDPA", "forward", "SDPA", "theirs", "#d95f02", "-"),
    Curve("headwise", "forward", "SDPA", "ours", "#1b6ca8", "-"),
    Curve(f"SDPA, window of {WINDOW}", f"window({WINDOW}), forward", "SDPA", "theirs", "#d95f02", "--"),
    Curve(f"headwise, window of {WINDOW}", f"window({WINDOW}), forward", "SDPA", "ours", "#1b6ca8", "--"),
)


def draw(folder: Path = RESULTS) -> Path:
    """Write <folder>/time-and-memory.png from <folder>/lengths.json."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise NothingToDrawError(f"the picture needs matplotlib: {say('install.extra', extra='plot')}") from error
    missing = "no lengths were measured yet: python -m benchmarks --only lengths"
    try:
        record = read("lengths", folder)
    except FileNotFoundError as error:
        raise NothingToDrawError(missing) from error
    if not record["rows"]:
        raise NothingToDrawError(missing)
    figure = Figure(figsize=(11, 4.8), layout="constrained")
    FigureCanvasAgg(figure)
    time, memory = figure.subplots(1, 2)
    _panel(time, record, "seconds", factor=1e3, label="milliseconds a call")
    _panel(memory, record, "bytes", factor=1e-6, label="MB at the peak, beyond the inputs")
    handles, names = time.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=len(CURVES), frameon=False)
    figure.suptitle(_title(record), fontsize=11)
    path = folder / "time-and-memory.png"
    figure.savefig(path, dpi=130)
    return path


def points(record: dict[str, Any], curve: Curve, unit: str) -> list[tuple[int, float]]:
    """(L, figure) of a curve, by L; without the lengths where it was not measured."""
    found = []
    for row in record["rows"]:
        figure = row.get(f"{curve.side}_{unit}")
        if (row["case"], row["beside"]) == (curve.case, curve.beside) and figure is not None:
            found.append((int(row["shape"].rpartition(" L=")[2]), figure))
    return sorted(found)


def _title(record: dict[str, Any]) -> str:
    machine, first = record["machine"], record["rows"][0]
    shape, measured_on = first["shape"].rpartition(" ")[0], f"{machine['cpu']}, {machine['threads']} threads"
    return f"One forward pass, {shape}, {first['dtype']}; {measured_on}, torch {record['versions']['torch']}"


def _panel(axes: Any, record: dict[str, Any], unit: str, *, factor: float, label: str) -> None:
    lengths: set[int] = set()
    for curve in CURVES:
        found = points(record, curve, unit)
        lengths.update(L for L, _ in found)
        # a side that took nothing beyond its inputs has no place on a logarithmic axis
        shown = {L: figure * factor for L, figure in found if figure > 0}
        style = {"color": curve.color, "linestyle": curve.dashes, "marker": "o", "markersize": 4}
        axes.plot(list(shown), list(shown.values()), label=curve.name, **style)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(sorted(lengths), [str(L) for L in sorted(lengths)])
    axes.set_xlabel("length L")
    axes.set_ylabel(label)
    axes.grid(alpha=0.3)
