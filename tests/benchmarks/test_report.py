"""The table and the record say what was measured, on what, and nothing about whose machine it is."""

import json
import platform
from pathlib import Path

import pytest
import torch

from benchmarks import __main__ as command
from benchmarks.harness import EXTRA_MICROSECONDS, Case, Measured, Pair, WrongNumbersError
from benchmarks.machine import Machine, versions
from benchmarks.report import heading, line, write


def case(**changes):
    words = {"name": "forward", "beside": "plain", "shape": "B=2 L=5", "dtype": "float32"}
    given = {"ours": lambda: None, "theirs": lambda: None, "check": lambda: None, "target": 1.25}
    return Case(**words, **(given | changes))


def refuse():
    raise WrongNumbersError("ours is wrong in tensor 0")


SLOW = Measured(case(), (Pair(2.0, 2.2), Pair(2.0, 2.4), Pair(2.0, 2.6)))
LIGHT = Measured(case(quantity=EXTRA_MICROSECONDS, target=60), (Pair(150e-6, 110e-6), Pair(150e-6, 100e-6)))


def test_a_row_shows_times_median_quartiles_target_and_verdict():
    assert line(SLOW).split("  ")[0] == "forward"
    for shown in ("2 s", "2.4 s", "theirs/ours", "1.20x", "1.15..1.25", ">= 1.25x", "NOT MET"):
        assert shown in line(SLOW)
    for shown in ("150 us", "105 us", "ours-theirs", "45.0us", "<= 60us"):
        assert shown in line(LIGHT)
    assert line(LIGHT).endswith("  met")


def test_a_row_without_a_target_has_no_verdict():
    assert line(Measured(case(target=None), SLOW.pairs)).endswith("1.15..1.25")


def test_the_heading_shows_the_machine_the_versions_and_the_columns():
    machine = Machine("A CPU", 4, 3, ("avx2", "avx512_bf16"), "AVX512", 0.5)
    first, second, _, columns = heading(machine).splitlines()
    assert first.endswith("A CPU, 4 cores, 3 threads, avx2 avx512_bf16, torch kernels AVX512, load 0.5 before")
    assert f"torch {torch.__version__}" in second
    assert columns.split()[:2] == ["case", "beside"]


def test_the_record_holds_every_figure_with_its_machine_and_versions(tmp_path):
    machine = Machine.here()
    path = write("forward", machine, [SLOW, LIGHT], tmp_path / "results")
    record = json.loads(path.read_text(encoding="utf-8"))
    assert path.name == "forward.json"
    assert (record["machine"]["threads"], record["versions"]) == (torch.get_num_threads(), versions())
    assert [(row["median"], row["is_met"], row["unit"]) for row in record["rows"]] == [
        (pytest.approx(1.2), False, "x"),
        (pytest.approx(45.0), True, "us"),
    ]


def test_the_record_names_neither_host_nor_folder(tmp_path):
    text = write("forward", Machine.here(), [SLOW], tmp_path).read_text(encoding="utf-8")
    for private in (platform.node(), str(Path.home()), str(Path.cwd()), str(tmp_path)):
        assert not private or f'"{private}' not in text


def run(monkeypatch, tmp_path, cases, *arguments):
    kept = []
    monkeypatch.setattr(command, "GROUPS", {"forward": lambda: iter(cases), "decode": lambda: iter(())})
    monkeypatch.setattr(command, "THOROUGH", command.QUICK)
    monkeypatch.setattr(command, "write", lambda name, machine, measured: kept.append((name, len(measured))))
    return command.main(arguments), kept


def test_the_command_measures_and_keeps_every_group(monkeypatch, tmp_path, capsys):
    assert run(monkeypatch, tmp_path, [case(), case()]) == (0, [("forward", 2), ("decode", 0)])
    assert capsys.readouterr().out.count("forward  ") == 2


def test_a_quick_look_keeps_nothing(monkeypatch, tmp_path, capsys):
    assert run(monkeypatch, tmp_path, [case()], "--quick", "--only", "forward") == (0, [])
    assert "theirs/ours" in capsys.readouterr().out


def test_a_refused_case_is_named_and_the_others_are_measured(monkeypatch, tmp_path, capsys):
    status, kept = run(monkeypatch, tmp_path, [case(check=refuse), case()], "--only", "forward")
    assert (status, kept) == (1, [("forward", 1)])
    assert "forward, B=2 L=5: not timed, ours is wrong in tensor 0" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--only", "nothing"], "invalid choice: 'nothing' (choose from"),
        (["--threads", "0"], "--threads counts threads, so it must be 1 or more; got 0"),
    ],
    ids=["group", "threads"],
)
def test_the_command_refuses_what_it_does_not_know(arguments, sentence, capsys):
    with pytest.raises(SystemExit, match="2"):
        command.main(arguments)
    assert sentence in capsys.readouterr().err


def test_the_command_uses_as_many_threads_as_it_is_told(monkeypatch, tmp_path, capsys):
    assert run(monkeypatch, tmp_path, [], "--threads", "1")[0] == 0
    assert ", 1 threads," in capsys.readouterr().out
    assert torch.get_num_threads() == 1
