"""Quick: what make quick leaves out, by what a test does: compile, start a process, open a browser, measure.

Whole rooms whose tests are of that kind, or examine a class for a second each, are not collected. A test elsewhere that
starts a process or compiles is ended at that call, and counts as skipped. Of a grid, a law with two parameters or more,
some cases are run, evenly. make full runs all of them.
"""

import sys
from collections import defaultdict
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch

__all__ = ["Quick", "is_left_out", "kept"]

ROOMS = {"benchmarks", "calls", "dataflow", "diagnosis", "distributed", "example_scripts", "pages", "tracing"}
# as many cases of a grid are run
CASES = 4
NO_GRID = SimpleNamespace(params={})
# interpreted kernels, browsers and programs of others; parts of tests/optional.py
PARTS = {"chromium", "eslint", "inductor", "node", "onnxruntime", "onnxscript", "triton"}
FIXTURES = {"browser"}
# events of Python by which a process is started
STARTS = {"os.fork", "os.posix_spawn", "os.system", "subprocess.Popen"}
COMPILERS = ((torch, "compile"), (torch.export, "export"), (torch.onnx, "export"), (torch.jit, "script"))


def is_left_out(path) -> bool:
    """Whether a folder of tests is one of those that are not collected."""
    return path.is_dir() and path.name in ROOMS


def kept(items):
    """The tests that are run, in their order."""
    grids = defaultdict(list)
    for item in items:
        if not _needs_more(item):
            is_grid = len(getattr(item, "callspec", NO_GRID).params) > 1
            grids[item.nodeid.partition("[")[0] if is_grid else item.nodeid].append(item)
    return [item for grid in grids.values() for item in grid[:: -(-len(grid) // CASES)]]


def _needs_more(item) -> bool:
    """Whether a test declares that it needs more than Python and torch."""
    parts = {part for marker in item.iter_markers("needs") for part in marker.args}
    return bool(parts & PARTS or set(item.fixturenames) & FIXTURES)


class Quick:
    """What ends a test as skipped where it starts a process or compiles."""

    def __init__(self) -> None:
        self._is_running, self.reason = False, ""

    def _end(self, reason: str) -> None:
        self.reason = f"not quick: {reason}"
        pytest.skip(self.reason)

    def listen(self) -> None:
        """Hear of each process that a test starts, for as long as this one lives."""

        def heard(event, _):
            if self._is_running and event in STARTS:
                self._end(event)

        sys.addaudithook(heard)

    def repeat(self) -> None:
        """End a test once more that failed after it was ended: it may catch what ends it, as an example does."""
        if self.reason:
            pytest.skip(self.reason)

    @contextmanager
    def one_test(self):
        """A context for a test."""

        def refused(*args, **options):
            self._end("it compiles")

        with pytest.MonkeyPatch.context() as patch:
            for module, name in COMPILERS:
                patch.setattr(module, name, refused)
            self._is_running, self.reason = True, ""
            try:
                yield
            finally:
                self._is_running = False
