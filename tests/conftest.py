"""What holds for every test: a fixed seed, one thread, no network, and a word about each part that was not run."""

import os
import tempfile

# before any test imports these libraries: no test may download a model or open a window
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("MPLBACKEND", "Agg")
# and before triton is imported, which reads it then: kernels run on the CPU here, and on a device by make gpu
os.environ.setdefault("TRITON_INTERPRET", "1")
if level := os.environ.get("ATEN_CPU_CAPABILITY"):
    # torch keeps compiled code under a key that does not name the level: code of wider vectors, compiled again for
    # narrower ones, runs past its end
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", f"{tempfile.gettempdir()}/torchinductor_{level}")

import pytest
import torch
from hypothesis import settings

from tests.optional import not_run_lines, require

settings.register_profile("headwise", derandomize=True, deadline=None, database=None)
settings.load_profile("headwise")


@pytest.fixture(autouse=True)
def fixed_seed_and_one_thread():
    torch.manual_seed(0)
    torch.set_num_threads(1)


def pytest_runtest_setup(item):
    for marker in item.iter_markers("needs"):
        for part in marker.args:
            require(part)


def pytest_terminal_summary(terminalreporter):
    for line in not_run_lines(terminalreporter.stats.get("skipped", [])):
        terminalreporter.write_line(line)
