"""What holds for the tests of the doctor: a check that fails, which a person is only told, fails the test."""

import pytest

from headwise.diagnosis.check_runner import CheckRunner


@pytest.fixture(autouse=True)
def a_failing_check_raises(monkeypatch):
    def note(self, name, error):
        raise AssertionError(f"the check of {name!r} failed") from error

    monkeypatch.setattr(CheckRunner, "note", note)
