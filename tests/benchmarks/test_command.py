"""The command measures what it is asked for, says what it leaves out and why, and keeps both."""

import dataclasses

import pytest
import torch

from benchmarks import __main__ as command
from benchmarks.__main__ import GROUPS, Group
from benchmarks.harness import BRIEF, QUICK, Absent, Case, NotMeasuredError, WrongNumbersError

ABSENT = Absent("forward", "a peer", "B=2 L=5", "not installed: pip install a-peer")


def case(**changes):
    words = {"name": "forward", "beside": "plain", "shape": "B=2 L=5", "dtype": "float32"}
    given = {"ours": lambda: None, "theirs": lambda: None, "check": lambda: None, "target": 1.25}
    return Case(**(words | given | changes))


def refuse():
    raise WrongNumbersError("ours is wrong in tensor 0")


def not_here():
    raise NotMeasuredError("the compiler is missing")


@dataclasses.dataclass
class Done:
    """The status of a run, what it printed, and what it kept of each group."""

    status: int
    printed: str
    kept: dict[str, tuple[list[str], list[Absent]]]


@pytest.fixture
def run(monkeypatch, capsys):
    """Run the command on these cases as its group forward, beside an empty group decode."""

    def done(cases, *arguments):
        kept = {}
        groups = {"forward": Group(lambda: iter(cases), QUICK), "decode": Group(lambda: iter(()), QUICK)}
        monkeypatch.setattr(command, "GROUPS", groups)
        monkeypatch.setattr(
            command,
            "write",
            lambda name, machine, rows, absent: kept.update({name: ([row.case.beside for row in rows], absent)}),
        )
        status = command.main(arguments)
        return Done(status, capsys.readouterr().out, kept)

    return done


def test_every_group_is_measured_and_kept(run):
    done = run([case(), case(beside="other")])
    assert (done.status, done.kept) == (0, {"forward": (["plain", "other"], []), "decode": ([], [])})
    assert done.printed.count("forward  ") == 2


def test_a_quick_look_keeps_nothing(run):
    done = run([case()], "--quick", "--only", "forward")
    assert (done.status, done.kept) == (0, {})
    assert "theirs/ours" in done.printed


def test_a_quick_look_leaves_long_cases_out_unchecked_and_says_how_many(run):
    long = case(beside="long", is_long=True, check=refuse)
    done = run([long, case(), long], "--quick", "--only", "forward")
    assert done.status == 0
    assert "long  " not in done.printed
    assert done.printed.endswith("... and 2 that take long, which a quick look leaves out\n")
    assert "plain" in done.printed


def test_a_whole_look_takes_long_cases_too(run):
    done = run([case(beside="long", is_long=True)], "--only", "forward")
    assert done.kept == {"forward": (["long"], [])}
    assert "which a quick look leaves out" not in done.printed


def test_a_refused_case_is_named_and_the_others_are_measured(run):
    done = run([case(check=refuse), case(beside="other")], "--only", "forward")
    assert (done.status, done.kept) == (1, {"forward": (["other"], [])})
    assert "forward, plain, B=2 L=5: not timed, ours is wrong in tensor 0" in done.printed


def test_what_is_absent_or_cannot_be_measured_is_shown_and_kept_and_no_failure(run):
    done = run([ABSENT, case(check=not_here), case(beside="other")], "--only", "forward")
    reason = "not measured: the compiler is missing"
    assert done.status == 0
    assert done.kept == {"forward": (["other"], [ABSENT, Absent("forward", "plain", "B=2 L=5", reason)])}
    rows = [row for row in done.printed.splitlines() if row.startswith("forward")]
    assert [row.rpartition("B=2 L=5")[2].strip() for row in rows[:2]] == [ABSENT.reason, reason]


def test_a_group_is_timed_by_its_own_effort_and_a_quick_look_by_another(monkeypatch):
    efforts = []
    monkeypatch.setattr(command, "GROUPS", {"forward": Group(lambda: iter([case()]), BRIEF)})
    monkeypatch.setattr(command, "_case", lambda case, effort, found: efforts.append(effort))
    monkeypatch.setattr(command, "write", lambda *record: None)
    command.main([])
    command.main(["--quick"])
    assert efforts == [BRIEF, QUICK]


def test_every_group_is_in_the_table():
    assert {*GROUPS} == {
        "forward", "training", "written", "overhead", "decode", "imports",
        "kernels", "maps", "effects", "statistics", "memory", "peers", "lengths",
    }  # fmt: skip
    assert [name for name, group in GROUPS.items() if group.cases.__name__ != name] == []


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


def test_the_command_uses_as_many_threads_as_it_is_told(run):
    # as every test before it begins with one
    done = run([], "--threads", "2")
    assert ", 2 threads," in done.printed
    assert torch.get_num_threads() == 2
