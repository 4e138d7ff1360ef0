"""headwise plot: a figure of the maps in a file, and one sentence where there can be none."""

import re

import pytest

from headwise.cli.plot import VIEWS
from headwise.maps import save_maps
from tests.pages.made import a_map

pytestmark = pytest.mark.needs("matplotlib", "safetensors")


@pytest.fixture
def maps(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_maps("maps.safetensors", {"own": a_map(), "other": a_map(H=2)})
    return tmp_path


@pytest.mark.parametrize(
    "options",
    [
        *((), ("--layer", 1, "--head", 1), ("--layer", 1), ("--head", 2, "--scale", "log")),
        *(("--view", view) for view in VIEWS),
        *(("--token", 2), ("--view", "heads", "--token", 2, "--head", 1)),
    ],
    ids=["all", "one", "mean", "log", *VIEWS, "token", "lines of a token"],
)
def test_a_figure_is_written_and_named(headwise, maps, options):
    done = headwise("plot", "maps.safetensors", "-o", "figure.svg", *options)
    assert (done.exit_code, done.stdout, done.stderr) == (0, "Written: figure.svg\n", "")
    assert (maps / "figure.svg").read_bytes().startswith(b"<?xml")


BAD = {
    "layer": (["--layer", "2"], ["0", "1", "2"]),
    "head": (["--layer", "1", "--head", "2"], ["layer 1", "1", "2"]),
    "scale": (["--scale", "sqrt"], ["--scale", "linear"]),
    "view": (["--view", "all"], ["overview, map, heads", "all came"]),
    "view of all": (["--view", "statistics", "--head", "1"], ["statistics", "--head"]),
    "token": (["--token", "5"], ["0..4", "got 5"]),
    "sample": (["--sample", "1"], ["0..0", "got 1"]),
    "suffix": (["-o", "figure.html"], [".svg, .pdf, .png", "figure.html"]),
    "folder": (["-o", "nowhere/figure.svg"], ["nowhere"]),
}


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_drawn_gets_one_sentence_and_status_2(headwise, maps, case, lang):
    options, wanted = BAD[case]
    done = headwise("plot", "maps.safetensors", "-o", "figure.svg", *options, "--lang", lang)
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert lang == "zh" or [part for part in wanted if part not in done.stderr] == []
    assert bool(re.search("[\u4e00-\u9fff]", done.stderr)) == (lang == "zh")
    assert [file.name for file in maps.iterdir()] == ["maps.safetensors"]


def test_a_figure_that_is_there_is_kept_unless_forced(headwise, maps):
    (maps / "figure.svg").write_text("mine")
    assert headwise("plot", "maps.safetensors", "-o", "figure.svg").exit_code == 2
    assert (maps / "figure.svg").read_text() == "mine"
    assert headwise("plot", "maps.safetensors", "-o", "figure.svg", "--force").exit_code == 0


def test_a_file_that_holds_no_maps_is_refused(headwise, maps):
    (maps / "other.safetensors").write_bytes(b"nothing")
    done = headwise("plot", "other.safetensors", "-o", "figure.svg")
    assert (done.exit_code, "other.safetensors" in done.stderr) == (2, True)
