"""The table and the record say what was measured, on what, and nothing about whose machine it is."""

import json
import math
import platform
from pathlib import Path

import pytest
import torch

from benchmarks.harness import EXTRA_MICROSECONDS, OUR_MEGABYTES, Absent, Case, Measured, Pair
from benchmarks.machine import Machine, versions
from benchmarks.report import COLUMNS, heading, line, line_of_absent, read, write


def case(**changes):
    words = {"name": "forward", "beside": "plain", "shape": "B=2 L=5", "dtype": "float32"}
    given = {"ours": lambda: None, "theirs": lambda: None, "check": lambda: None, "target": 1.25}
    return Case(**(words | given | changes))


SLOW = Measured(case(), (Pair(2.0, 2.2), Pair(2.0, 2.4), Pair(2.0, 2.6)))
LIGHT = Measured(case(quantity=EXTRA_MICROSECONDS, target=60), (Pair(150e-6, 110e-6), Pair(150e-6, 100e-6)))
IN_BYTES = Measured(case(quantity=OUR_MEGABYTES, target=500, is_in_bytes=True), (Pair(612.3e6, math.nan),))
WEIGHED = Measured(case(is_weighed=True), SLOW.pairs, Pair(7.25e6, 123.4e6))
UNWEIGHED = Measured(case(is_weighed=True), SLOW.pairs)
SHARED = Measured(case(flops=6e9), SLOW.pairs, rate=4e9)
ABSENT = Absent("forward", "a peer", "B=2 L=5", "not installed: pip install a-peer")


def cells(row):
    """What a row shows, by the name of its column."""
    found, start = {}, 0
    for name, width in COLUMNS:
        found[name] = row[start : start + width].strip()
        start += width + 2
    return found


def test_a_row_shows_times_median_quartiles_target_and_verdict():
    shown = cells(line(SLOW))
    assert [shown[name] for name in ("case", "beside", "shape", "dtype")] == ["forward", "plain", "B=2 L=5", "float32"]
    assert [shown[name] for name in ("ours", "theirs", "quantity")] == ["2 s", "2.4 s", "theirs/ours"]
    assert [shown[name] for name in ("median", "quartiles", "target", "")] == [
        "1.20x", "1.15..1.25", ">= 1.25x", "NOT MET",
    ]  # fmt: skip
    assert [shown[name] for name in ("of matmul", "peak memory")] == ["", ""]
    shown = cells(line(LIGHT))
    assert [shown[name] for name in ("ours", "theirs", "quantity")] == ["150 us", "105 us", "ours-theirs"]
    assert [shown[name] for name in ("median", "target", "")] == ["45.0us", "<= 60us", "met"]


def test_a_row_without_a_target_has_no_verdict():
    assert line(Measured(case(target=None), SLOW.pairs)).endswith("1.15..1.25")


def test_a_row_in_bytes_shows_megabytes_and_which_side_was_not_run():
    shown = cells(line(IN_BYTES))
    assert [shown[name] for name in ("ours", "theirs", "median")] == ["612.3 MB", "not run", "612.3MB"]
    assert [shown[name] for name in ("quartiles", "target", "")] == ["612.3..612.3", "<= 500MB", "NOT MET"]


def test_a_row_shows_the_peak_of_both_sides_or_that_it_was_not_measured():
    assert line(WEIGHED).endswith("7.25 MB / 123.4 MB")
    assert line(UNWEIGHED).endswith("  not measured")


def test_a_row_shows_our_share_of_the_rate_of_torch():
    # 6e9 operations in 2 s, where torch does 4e9 in one
    assert cells(line(SHARED))["of matmul"] == "75%"


def test_what_is_absent_is_a_row_with_its_reason():
    row = line_of_absent(ABSENT)
    assert [cells(row)[name] for name in ("case", "beside")] == ["forward", "a peer"]
    assert row.endswith("B=2 L=5  not installed: pip install a-peer")


def test_the_heading_shows_the_machine_the_versions_and_the_columns():
    machine = Machine("A CPU", 4, 3, ("avx2", "avx512_bf16"), "AVX512", 0.5)
    first, second, _, columns = heading(machine).splitlines()
    assert first.endswith("A CPU, 4 cores, 3 threads, avx2 avx512_bf16, torch kernels AVX512, load 0.5 before")
    assert f"torch {torch.__version__}" in second
    assert cells(columns) == {name: name for name, _ in COLUMNS}


def test_the_record_holds_every_figure_with_its_machine_and_versions(tmp_path):
    machine = Machine.here()
    path = write("forward", machine, [SLOW, LIGHT], folder=tmp_path / "results")
    record = read("forward", tmp_path / "results")
    assert path.name == "forward.json"
    assert record["schema"] == 2
    assert (record["machine"]["threads"], record["versions"]) == (torch.get_num_threads(), versions())
    assert [(row["median"], row["is_met"], row["unit"]) for row in record["rows"]] == [
        (pytest.approx(1.2), False, "x"),
        (pytest.approx(45.0), True, "us"),
    ]


def test_a_row_is_kept_whole(tmp_path):
    write("forward", Machine.here(), [SLOW], folder=tmp_path)
    assert read("forward", tmp_path)["rows"] == [
        {
            "case": "forward", "beside": "plain", "shape": "B=2 L=5", "dtype": "float32",
            "quantity": "theirs/ours", "unit": "x", "median": 1.2, "quartiles": [1.15, 1.25],
            "target": 1.25, "is_met": False, "ours_seconds": 2.0, "theirs_seconds": 2.4, "rounds": 3,
        }
    ]  # fmt: skip


def test_memory_and_shares_are_kept_beside_the_times(tmp_path):
    write("forward", Machine.here(), [IN_BYTES, WEIGHED, SHARED], folder=tmp_path)
    in_bytes, weighed, shared = read("forward", tmp_path)["rows"]
    # a side that was not run has no figure
    assert (in_bytes["ours_bytes"], in_bytes["theirs_bytes"], "ours_seconds" in in_bytes) == (612.3e6, None, False)
    assert (in_bytes["median"], in_bytes["quartiles"], in_bytes["rounds"]) == (612.3, [612.3, 612.3], 1)
    assert (weighed["ours_bytes"], weighed["theirs_bytes"]) == (7.25e6, 123.4e6)
    assert (weighed["ours_seconds"], weighed["theirs_seconds"]) == (2.0, 2.4)
    assert (shared["share_of_matmul"], "share_of_matmul" in weighed, "ours_bytes" in shared) == (0.75, False, False)


def test_what_is_absent_is_kept_with_its_reason(tmp_path):
    write("peers", Machine.here(), [SLOW], [ABSENT], tmp_path)
    record = read("peers", tmp_path)
    assert [Absent(**each) for each in record["absent"]] == [ABSENT]
    assert len(record["rows"]) == 1


def test_the_record_is_json_that_everyone_reads(tmp_path):
    def refuse(constant):
        raise ValueError(f"JSON has no {constant}")

    text = write("memory", Machine.here(), [IN_BYTES], [ABSENT], tmp_path).read_text(encoding="utf-8")
    assert json.loads(text, parse_constant=refuse) == read("memory", tmp_path)


def test_a_group_that_was_not_kept_cannot_be_read(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"lengths\.json"):
        read("lengths", tmp_path)


def test_the_record_names_neither_host_nor_folder(tmp_path):
    text = write("forward", Machine.here(), [SLOW], [ABSENT], tmp_path).read_text(encoding="utf-8")
    for private in (platform.node(), str(Path.home()), str(Path.cwd()), str(tmp_path)):
        assert not private or f'"{private}' not in text
