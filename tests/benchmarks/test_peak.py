"""The meter sees what a call holds at its peak, and says where it cannot."""

from types import SimpleNamespace

import numpy
import pytest
import torch

from benchmarks import peak
from benchmarks.peak import peak_extra, why_not

SIZE = 64_000_000


@pytest.fixture(scope="module")
def missing():
    """Why the meter does not work here, which stands in place of every figure; "" where it does."""
    return why_not()


def seen(missing, *runs):
    """The bytes that the meter sees of each call."""
    return [missing or peak_extra(run) for run in runs]


def near(missing, *sizes):
    """Those sizes, each within 6.4 MB."""
    return [missing or pytest.approx(size, abs=SIZE / 10) for size in sizes]


def ones(size=SIZE):
    return torch.ones(size, dtype=torch.uint8)


@pytest.mark.parametrize("run", [ones, lambda: numpy.ones(SIZE, dtype=numpy.uint8)], ids=["torch", "numpy"])
def test_an_allocation_is_seen(run, missing):
    assert seen(missing, run) == near(missing, SIZE)


def test_what_was_held_before_and_what_is_reserved_only_do_not_count(missing):
    held = ones()
    assert seen(missing, lambda: torch.empty(SIZE, dtype=torch.uint8)) == near(missing, 0)
    assert held.sum() == SIZE


def test_the_peak_counts_and_not_what_is_left(missing):
    def run():
        for size in (SIZE // 2, SIZE, SIZE // 4):
            ones(size)

    assert seen(missing, run) == near(missing, SIZE)


def test_an_earlier_peak_is_forgotten_and_what_a_call_returns_is_let_go(missing):
    assert seen(missing, ones, lambda: None, ones) == near(missing, SIZE, 0, SIZE)


def test_elsewhere_than_on_linux_the_meter_says_so(monkeypatch):
    monkeypatch.setattr(peak, "sys", SimpleNamespace(platform="darwin"))
    assert why_not() == "peak memory is read from Linux's /proc, and this is darwin"


def test_a_peak_that_cannot_be_set_back_or_read_is_said(monkeypatch, tmp_path):
    monkeypatch.setattr(peak, "sys", SimpleNamespace(platform="linux"))
    monkeypatch.setattr(peak, "PROCESS", tmp_path / "nothing")
    assert why_not() == "the peak of this process cannot be set back: No such file or directory"
    monkeypatch.setattr(peak, "PROCESS", tmp_path)
    (tmp_path / "status").write_text("Name:\tpython\nVmRSS:\t    12 kB\n", encoding="ascii")
    assert why_not() == "/proc/self/status does not say VmHWM"
    (tmp_path / "status").write_text("VmHWM:\t    12 kB\n", encoding="ascii")
    assert (why_not(), (tmp_path / "clear_refs").read_text(encoding="ascii")) == ("", "5")


@pytest.mark.parametrize("has_trim", [False, True])
def test_an_allocator_without_trim_is_left_alone(monkeypatch, has_trim):
    calls = []
    library = SimpleNamespace(**({"malloc_trim": calls.append} if has_trim else {}))
    monkeypatch.setattr(peak.ctypes, "CDLL", lambda name: library)
    peak._give_back()
    assert calls == ([0] if has_trim else [])
