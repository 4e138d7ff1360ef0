"""The picture shows the rows of the lengths that its curves name, in milliseconds and megabytes."""

import itertools
import sys

import pytest

from benchmarks import __main__ as command
from benchmarks import lengths, plot
from benchmarks.harness import Measured, Pair
from benchmarks.machine import Machine
from benchmarks.plot import CURVES, NothingToDrawError, draw, points
from benchmarks.report import read, write

HEADWISE = CURVES[2]


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """A folder with a record of the group's own cases at two lengths, with figures that all differ."""
    monkeypatch.setattr(lengths, "LENGTHS", (20, 9))
    figures = itertools.count(1)
    measured = [
        Measured(case, (Pair(next(figures) * 1e-3, next(figures) * 1e-3),), Pair(next(figures) * 1e6, 0.0))
        for case in lengths.lengths()
    ]
    write("lengths", Machine.here(), measured, folder=tmp_path)
    return tmp_path


def row(beside, L, **figures):
    return {"case": "forward", "beside": beside, "shape": f"B=1 H=8 D=64 L={L}"} | figures


def test_points_are_one_side_of_the_rows_of_one_case_by_length():
    record = {
        "rows": [
            row("SDPA", 1024, ours_seconds=3.0, theirs_seconds=4.0),
            row("SDPA", 512, ours_seconds=1.0, theirs_seconds=2.0, ours_bytes=7.0),
            row("SDPA", 2048, ours_seconds=5.0, theirs_seconds=6.0, ours_bytes=None),
            row("eager", 512, ours_seconds=8.0, theirs_seconds=9.0, ours_bytes=10.0),
            row("SDPA", 512, ours_seconds=11.0) | {"case": "window(128), forward"},
        ]
    }
    assert points(record, HEADWISE, "seconds") == [(512, 1.0), (1024, 3.0), (2048, 5.0)]
    assert points(record, HEADWISE._replace(side="theirs"), "seconds") == [(512, 2.0), (1024, 4.0), (2048, 6.0)]
    assert points(record, HEADWISE._replace(beside="eager"), "seconds") == [(512, 8.0)]
    assert points(record, HEADWISE, "bytes") == [(512, 7.0)]


@pytest.mark.parametrize("curve", CURVES, ids=lambda curve: curve.name)
def test_each_curve_finds_its_rows_among_the_cases_of_the_group(curve, folder):
    assert [L for L, _ in points(read("lengths", folder), curve, "seconds")] == [9, 20]


def test_no_two_curves_show_the_same_figures(folder):
    record = read("lengths", folder)
    assert len({str(points(record, curve, "seconds")) for curve in CURVES}) == len(CURVES)


@pytest.mark.needs("matplotlib")
def test_the_picture_holds_every_curve_in_both_panels(folder, monkeypatch):
    from matplotlib.figure import Figure

    drawn = []
    right = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda self, *where, **how: drawn.append(self) or right(self, *where, **how))
    path = draw(folder)
    assert path == folder / "time-and-memory.png"
    assert path.read_bytes().startswith(b"\x89PNG")
    record = read("lengths", folder)
    for axes, unit, factor in zip(drawn[0].axes, ("seconds", "bytes"), (1e3, 1e-6), strict=True):
        shown = {line.get_label(): [tuple(point) for point in line.get_xydata().tolist()] for line in axes.lines}
        wanted = {
            curve.name: [(L, pytest.approx(figure * factor)) for L, figure in points(record, curve, unit) if figure]
            for curve in CURVES
        }
        assert shown == wanted
        assert [label.get_text() for label in axes.get_xticklabels()] == ["9", "20"]
    machine = record["machine"]
    assert f"B=1 H=8 D=64, bfloat16; {machine['cpu']}, {machine['threads']} thread" in drawn[0].get_suptitle()


@pytest.mark.needs("matplotlib")
def test_without_figures_there_is_nothing_to_draw(tmp_path):
    with pytest.raises(NothingToDrawError, match="no lengths were measured yet: python -m benchmarks --only lengths"):
        draw(tmp_path)
    write("lengths", Machine.here(), [], folder=tmp_path)
    with pytest.raises(NothingToDrawError, match="no lengths were measured yet"):
        draw(tmp_path)


def test_without_matplotlib_the_picture_says_what_to_install(folder, monkeypatch):
    for module in ("matplotlib.figure", "matplotlib.backends.backend_agg"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(NothingToDrawError, match=r"pip install '\.\[plot\]'"):
        draw(folder)
    assert not (folder / "time-and-memory.png").exists()


def test_the_command_draws_without_measuring(monkeypatch, capsys):
    monkeypatch.setattr(command, "GROUPS", {})
    monkeypatch.setattr(plot, "draw", lambda: "a-folder/time-and-memory.png")
    assert command.main(["--plot"]) == 0
    assert capsys.readouterr().out == "a-folder/time-and-memory.png\n"


def test_the_command_says_in_one_line_what_is_missing(monkeypatch, capsys):
    def refuse():
        raise NothingToDrawError("no lengths were measured yet")

    monkeypatch.setattr(plot, "draw", refuse)
    assert command.main(["--plot"]) == 1
    assert capsys.readouterr() == ("", "no lengths were measured yet\n")
