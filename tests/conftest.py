"""What holds for every test: a fixed seed, one thread, no network, and a word about each part that was not run."""

import contextlib
import gc
import os
import subprocess
import tempfile
from types import SimpleNamespace

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

from headwise.targets.child import process
from tests import quick
from tests.fork_server import Server, is_supported
from tests.optional import not_run_lines, require
from tests.pages.browsing import chromium
from tests.sample import Sample

settings.register_profile("headwise", derandomize=True, deadline=None, database=None)
settings.load_profile("headwise")
# under --quick, what ends a test that is not
QUICK = pytest.StashKey[quick.Quick]()
# under --sample, which of the slow tests are run
SAMPLE = pytest.StashKey[Sample]()


@pytest.fixture(autouse=True)
def fixed_seed_and_one_thread():
    torch.manual_seed(0)
    torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def forked_children(tmp_path_factory):
    """Children are forked of one process that has imported torch, which is started when the first is asked for."""
    if not is_supported():
        yield
        return
    started: list[Server] = []

    def child(command, **options):
        if not started:
            started.append(Server(tmp_path_factory.mktemp("fork-server")))
        return started[0].child(command, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process, "subprocess", SimpleNamespace(**{**vars(subprocess), "Popen": child}))
        yield
    for server in started:
        server.close()


@pytest.fixture(scope="session")
def browser():
    """Chromium, one for all tests of a process; a test that asks for it fails with a sentence, or is said to be not
    run, where it is missing."""
    with chromium() as opened:
        yield opened


@pytest.fixture
def started_children(monkeypatch):
    """Children are started as the product starts them: for tests of the start, the limits and what is left behind."""
    monkeypatch.setattr(process, "subprocess", subprocess)


def pytest_addoption(parser):
    parser.addoption("--quick", action="store_true", help="leave out what compiles, starts processes or measures")
    parser.addoption("--sample", action="store_true", help="of the slow tests run a part, another with each commit")


def pytest_configure(config):
    # a collection of all that torch has imported takes a tenth of a second, and the tests make millions of objects
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    if config.getoption("sample"):
        config.stash[SAMPLE] = Sample.of(config.rootpath)
    if config.getoption("quick"):
        config.stash[QUICK] = quick.Quick()
        config.stash[QUICK].listen()


def pytest_ignore_collect(collection_path, config):
    return (config.getoption("quick") and quick.is_left_out(collection_path)) or None


def pytest_collection_modifyitems(config, items):
    found = config.stash.get(SAMPLE, None)
    kept = items if found is None else found.kept(items)
    if config.getoption("quick"):
        kept = quick.kept(kept)
    if kept is not items:
        config.hook.pytest_deselected(items=list(set(items) - set(kept)))
        items[:] = kept


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    ending = item.config.stash.get(QUICK, None)
    with ending.one_test() if ending else contextlib.nullcontext():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    ending = item.config.stash.get(QUICK, None)
    try:
        return (yield)
    except Exception:
        if ending is not None:
            ending.repeat()
        raise


def pytest_runtest_setup(item):
    for marker in item.iter_markers("needs"):
        for part in marker.args:
            require(part)


def pytest_terminal_summary(terminalreporter):
    if (found := terminalreporter.config.stash.get(SAMPLE, None)) is not None:
        terminalreporter.write_line(str(found))
    for line in not_run_lines(terminalreporter.stats.get("skipped", [])):
        terminalreporter.write_line(line)
