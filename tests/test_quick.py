"""make quick leaves out what a test does: compile, start a process, open a browser, measure."""

import subprocess
import sys

import pytest
import torch
from _pytest.outcomes import Skipped

from tests.quick import Quick

SUITE = """
import os, subprocess, sys
import pytest, torch

def test_plain():
    assert True

@pytest.mark.needs("inductor")
def test_declares():
    assert True

@pytest.mark.parametrize("a", range(4))
@pytest.mark.parametrize("b", range(4))
def test_grid(a, b):
    assert a * b < 16

def test_process():
    assert subprocess.run([sys.executable, "-c", ""]).returncode == 0

def test_compiles():
    assert torch.compile(torch.sin, backend="eager")(torch.zeros(1)) == 0

def test_catches_what_ends_it():
    done = None
    try:
        done = subprocess.run([sys.executable, "-c", ""])
    except BaseException:
        pass
    assert done is not None
"""


def collected(tmp_path, *flags):
    """How the tests of SUITE and of a room that is left out end."""
    (tmp_path / "diagnosis").mkdir()
    (tmp_path / "diagnosis" / "test_room.py").write_text("def test_room():\n    assert True\n", encoding="utf-8")
    (tmp_path / "test_suite.py").write_text(SUITE, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "-p", "no:warnings", "--rootdir"]
    done = subprocess.run([*command, tmp_path, *flags, tmp_path], capture_output=True, text=True, check=False)
    return done.stdout.splitlines()[-1].partition(" in ")[0]


@pytest.mark.needs("inductor")
def test_what_a_test_does_decides(tmp_path):
    assert collected(tmp_path, "--quick") == "5 passed, 3 skipped, 13 deselected"


def test_after_a_test_compilers_are_what_they_were():
    before = torch.compile
    with Quick().one_test():
        assert torch.compile is not before
        with pytest.raises(Skipped, match="it compiles"):
            torch.compile(torch.sin)
    assert torch.compile is before
