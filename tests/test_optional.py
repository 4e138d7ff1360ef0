"""A missing part is said aloud, and fails where everything is demanded."""

from types import SimpleNamespace

import pytest

from tests import optional
from tests.optional import not_run_lines, require


@pytest.fixture(autouse=True)
def parts(monkeypatch):
    monkeypatch.setattr(optional, "PARTS", {"here": lambda: "", "gone": lambda: "it was never built"})
    monkeypatch.delenv("HEADWISE_REQUIRE", raising=False)


def test_a_missing_part_skips_with_its_name_and_what_is_missing():
    with pytest.raises(pytest.skip.Exception, match=r"^not run: gone \(it was never built\)$"):
        require("gone")


def test_a_missing_part_fails_where_all_is_demanded(monkeypatch):
    monkeypatch.setenv("HEADWISE_REQUIRE", "all")
    with pytest.raises(pytest.fail.Exception, match="demands gone, but it was never built"):
        require("gone")


@pytest.mark.parametrize("demanded", ["", "all"])
def test_a_part_that_is_here_lets_the_test_run(monkeypatch, demanded):
    monkeypatch.setenv("HEADWISE_REQUIRE", demanded)
    assert require("here") is None


def test_an_unknown_part_lists_the_known_ones():
    with pytest.raises(ValueError, match="no optional part 'typo': choose from here, gone"):
        require("typo")


def test_an_unknown_demand_is_refused(monkeypatch):
    monkeypatch.setenv("HEADWISE_REQUIRE", "some")
    with pytest.raises(ValueError, match="must be 'all' or unset; it is 'some'"):
        require("here")


def test_the_summary_has_one_line_for_each_part():
    reasons = ["not run: gone (x)", "not run: gone (x)", "not run: chromium (y)", "another reason"]
    skipped = [SimpleNamespace(longrepr=("file.py", 3, f"Skipped: {reason}")) for reason in reasons]
    assert not_run_lines(skipped) == ["not run: chromium (y): tests: 1", "not run: gone (x): tests: 2"]
