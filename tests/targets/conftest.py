"""Loading changes where modules are found; a test must not see what another one loaded."""

import linecache
import sys

import pytest


@pytest.fixture(autouse=True)
def _as_before(monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    known, lines = set(sys.modules), set(linecache.cache)
    yield
    for name in set(sys.modules) - known:
        if name.startswith(("headwise_target", "d2l", "own_", "pack")):
            del sys.modules[name]
    for name in set(linecache.cache) - lines:
        del linecache.cache[name]


@pytest.fixture
def home(tmp_path, monkeypatch):
    """The folder where the person is."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
