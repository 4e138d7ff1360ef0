"""A forked child answers as a started one does, and is forked only of a process with one thread."""

import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from headwise.targets.child import process
from headwise.targets.child.process import in_child
from headwise.wording import Refusal
from tests.fork_server import _forked

pytestmark = pytest.mark.needs("fork server")
ENTRIES = "tests.targets.child.entries"
HOST = Path(__file__).parent / "diagnosis" / "hosts" / "listed.py"


@pytest.fixture
def both(monkeypatch):
    """both(entry, request, ...) -> what a forked child and what a started one answers, or the sentence of its end."""

    def answer(entry, request, **limits):
        try:
            return in_child(entry, request, **limits)
        except Refusal as refused:
            return str(refused)

    def answers(entry, request, **limits):
        forked = answer(entry, request, **limits)
        with monkeypatch.context() as patch:
            patch.setattr(process, "subprocess", subprocess)
            return forked, answer(entry, request, **limits)

    return answers


@pytest.mark.parametrize("part", ["tracing", "diagnosis"])
def test_a_forked_child_answers_what_a_started_one_answers(both, tmp_path, part):
    # away from headwise's own files, of which a forked child has imported more
    file = shutil.copy(HOST, tmp_path)
    forked, started = both(f"headwise.{part}.child:answer", {"target": f"{file}:MultiHead", "lang": "zh"})
    assert forked == started
    assert "refused" not in forked


def test_a_forked_child_is_as_isolated_as_a_started_one(both, monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "x")
    forked, started = both(f"{ENTRIES}:told", {})
    assert (forked.pop("torch"), started.pop("torch")) == (True, False)
    assert forked["folder"] == forked["home"] != started["folder"]
    assert {**started, "folder": "", "home": ""} == {**forked, "folder": "", "home": ""}
    assert not Path(forked["folder"]).exists()


@pytest.mark.parametrize(
    "name", ["fails", "exits", "exits_at_once", "crashes", "kills_itself", "closes_everything", "recurses", "sleeps"]
)
def test_a_forked_child_that_does_not_answer_ends_with_the_sentence_of_a_started_one(both, name):
    forked, started = both(f"{ENTRIES}:{name}", {}, seconds=1)
    assert isinstance(forked, str)
    assert forked == started


def test_a_forked_child_has_the_limits_of_a_started_one(both):
    forked, started = both(f"{ENTRIES}:allocates", {"gigabytes": 100})
    assert forked == started
    assert "at most 4096 MB of memory" in forked


def test_a_process_with_a_second_thread_is_not_forked():
    wait = threading.Event()
    second = threading.Thread(target=wait.wait)
    second.start()
    try:
        with pytest.raises(RuntimeError, match=r"must have 1 thread, but it has ([2-9]|[1-9][0-9]+):"):
            _forked({}, [])
    finally:
        wait.set()
        second.join()
