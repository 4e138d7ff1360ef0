"""make test leaves out slow tests, others with each commit, and none that is new or in a file that has changed."""

import subprocess
from types import SimpleNamespace

import pytest

from tests import sample
from tests.filemap import ROOT
from tests.sample import SHARE, Sample, name_of, recorded

# where tests stand that other files inherit
LAWS = ("tests/contract.py", "tests/ops/kernel_laws.py")
SECONDS = {"tests/a.py::test_grid": 2.0, "tests/a.py::TestRoom::test_one": 1.0, "tests/b.py::test_long": 9.0}
ITEMS = [
    SimpleNamespace(nodeid=nodeid, location=("tests/laws.py" if "test_long" in nodeid else "tests/a.py", 1, ""))
    for nodeid in (
        *(f"tests/a.py::test_grid[{n}-[x]]" for n in range(3 * SHARE)),
        "tests/a.py::TestRoom::test_one",
        "tests/a.py::TestRoom::test_new",
        "tests/b.py::test_long",
        "tests/b.py::test_quick[1]",
    )
]


def drawn(commit: str, *changed: str) -> list[str]:
    found = Sample(SECONDS, commit, frozenset(changed))
    return [item.nodeid for item in found.kept(ITEMS)]


def test_each_slow_test_is_in_the_sample_of_one_commit_and_all_others_in_each() -> None:
    samples = [drawn(f"{n:040x}") for n in range(SHARE)]
    for item in ITEMS:
        is_slow = name_of(item.nodeid) in SECONDS
        assert sum(item.nodeid in each for each in samples) == (1 if is_slow else SHARE), item
    # in their order, and as many of each as there can be
    assert all(each == [item.nodeid for item in ITEMS if item.nodeid in each] for each in samples)
    assert {sum("test_grid" in nodeid for nodeid in each) for each in samples} == {3}
    assert drawn("") == drawn("0" * 40)


def test_those_that_wait_for_something_made_once_are_run_together() -> None:
    made = SimpleNamespace(name2fixturedefs={"site": [SimpleNamespace(scope="module", baseid="tests/c.py")]})
    waiting = [
        SimpleNamespace(nodeid=f"tests/c.py::{name}", location=("tests/c.py", 1, ""), _fixtureinfo=made)
        for name in ("test_first", "test_second")
    ]
    alone = SimpleNamespace(nodeid="tests/c.py::test_alone", location=("tests/c.py", 1, ""))
    samples = [
        [
            item.nodeid
            for item in Sample({"tests/c.py::test_second": 4.0}, f"{n:x}", frozenset()).kept([*waiting, alone])
        ]
        for n in range(SHARE)
    ]
    assert sorted(map(len, samples)) == [*[1] * (SHARE - 1), 3]


def test_a_file_of_tests_that_has_changed_is_run_whole() -> None:
    found = drawn("1", "tests/a.py", "src/headwise/errors.py")
    assert [item.nodeid for item in ITEMS if item.nodeid.startswith("tests/a.py")] == found[: 3 * SHARE + 2]
    # and so are laws that it inherits
    assert all("tests/b.py::test_long" in drawn(f"{n:x}", "tests/laws.py") for n in range(SHARE))


def test_what_was_measured_is_there() -> None:
    for name, seconds in recorded().items():
        file, *_, place = name.split("::")
        # laws are inherited
        written = [(ROOT / each).read_text(encoding="utf-8") for each in (file, *LAWS)]
        assert any(f"def {place}(" in text for text in written), f"{name} is gone: take it out of slow_tests.txt"
        assert seconds > 0


def test_the_sample_of_a_clone_is_that_of_its_commit(tmp_path, monkeypatch) -> None:
    def git(*arguments: str) -> str:
        identity = ("-c", "user.name=a", "-c", "user.email=a@b.c")
        return subprocess.run(
            ["git", *identity, *arguments], cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout

    assert str(Sample.of(tmp_path)).endswith("those of no commit; make full runs all")
    git("init", "--quiet")
    for n in range(2):
        (tmp_path / f"test_{n}.py").write_text("\n", encoding="utf-8")
        git("add", "-A")
        git("commit", "--quiet", "-m", "A commit")
    (tmp_path / "test_0.py").write_text("\n\n", encoding="utf-8")
    found = Sample.of(tmp_path)
    assert found._commit == git("rev-parse", "HEAD").strip()
    assert found._changed == {"test_0.py", "test_1.py"}
    monkeypatch.setenv("PATH", str(tmp_path))
    assert Sample.of(tmp_path)._commit == ""


def test_a_test_of_each_file_is_never_left_out(tmp_path, monkeypatch) -> None:
    case = '<testcase classname="tests.test_style" name="test_limits[a.py]" time="9.0"/>'
    (tmp_path / "results.xml").write_text(f"<testsuites><testsuite>{case}</testsuite></testsuites>", encoding="utf-8")
    (tmp_path / "slow.txt").write_text("1.500 tests/test_b.py::test_y\n", encoding="utf-8")
    monkeypatch.setattr(sample, "RECORD", tmp_path / "slow.txt")
    sample.main([str(tmp_path / "results.xml")])
    # what was slow before stays
    assert (tmp_path / "slow.txt").read_text(encoding="utf-8") == "1.500 tests/test_b.py::test_y\n"
    assert [name for name in recorded() if name.startswith(("tests/test_names.py", "tests/test_style.py"))] == []


@pytest.mark.parametrize(
    ("where", "name"),
    [("tests.ops.test_a", "tests/ops/test_a.py::test_x"), ("tests.test_b.TestIt", "tests/test_b.py::TestIt::test_x")],
)
def test_results_of_pytest_are_read_by_name(tmp_path, monkeypatch, where: str, name: str) -> None:
    cases = "".join(
        f'<testcase classname="{where}" name="{case}" time="{time}"/>'
        for case, time in (("test_x[1-a.b]", 0.2), ("test_x[2]", 0.4), ("test_quick", 0.2), ("test_quick[7]", 0.3))
    )
    (tmp_path / "results.xml").write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>", encoding="utf-8")
    (tmp_path / "slow.txt").touch()
    monkeypatch.setattr(sample, "RECORD", tmp_path / "slow.txt")
    sample.main([str(tmp_path / "results.xml")])
    assert (tmp_path / "slow.txt").read_text(encoding="utf-8") == f"0.300 {name}\n"
