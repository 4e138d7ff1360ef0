"""A child answers as plain data, with limits, and knows little of the person who started it."""

import json
import math
import os
import time
from pathlib import Path

import pytest

from headwise.targets.child.command import started_in
from headwise.targets.child.process import in_child
from headwise.wording import Refusal
from tests.fresh import run_fresh

pytestmark = pytest.mark.usefixtures("started_children")
ENTRIES = "tests.targets.child.entries"


def child(name, request=None, **limits):
    return in_child(f"{ENTRIES}:{name}", request or {}, **limits)


def test_a_child_answers_what_its_function_returns_and_says_what_was_printed():
    request = {"numbers": [1, 2.5, None, True], "text": "多头 😊", "nested": {"a": []}, "nan": math.inf}
    answer = child("told", request)
    assert answer["request"] == request
    assert json.dumps(answer["numbers"]) == "[NaN, Infinity, -0.0, 0.1]"
    assert answer["printed"] == {"stdout": "printed, 打印\n", "stderr": "complained\n"}


def test_a_child_is_isolated(monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "x")
    monkeypatch.setenv("PYTHONSTARTUP", "/nowhere")
    answer = child("told")
    assert answer["session"]
    assert answer["isolated"]
    assert not answer["caches"]
    assert not answer["torch"]
    assert answer["arguments"] == []
    assert answer["input"] == ""
    assert answer["home"] == answer["folder"] != str(Path.cwd())
    assert {"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"} <= set(answer["variables"])
    assert not {"SECRET_TOKEN", "PYTHONSTARTUP", "USER"} & set(answer["variables"])
    assert not Path(answer["folder"]).exists()


def test_a_child_does_not_read_what_the_person_types():
    reading, writing = os.pipe()
    os.write(writing, b"typed")
    os.close(writing)
    before = os.dup(0)
    os.dup2(reading, 0)
    try:
        assert child("told")["input"] == ""
    finally:
        os.dup2(before, 0)
        os.close(before)
        os.close(reading)


def test_a_child_can_import_headwise_and_torch_with_one_thread_and_no_graphics_card():
    import headwise

    assert child("imports_headwise")["version"] == headwise.__version__
    answer = child("torch_is_there")
    assert (answer["threads"], answer["cuda"]) == (1, False)


def test_a_child_knows_the_folder_where_the_person_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert started_in() == tmp_path
    monkeypatch.setenv("HEADWISE_STARTED_IN", "/somewhere/else")
    assert started_in() == Path("/somewhere/else")


def test_a_refusal_in_a_child_is_raised_again_and_can_be_said_in_chinese():
    with pytest.raises(Refusal, match="A layer must be from 0 to 5, since a has 6, but 7 came") as caught:
        child("refuses")
    assert caught.value.said("zh").startswith("层号必须在 0 到 5 之间")


# what the code does, and what is said of it
ENDS = {
    "fails": r"raised KeyError: 'not there'",
    "says_nothing_of_its_error": r"raised Mute: \(ValueError\)",
    "ends_base_exception": r"exit status 1, after printing “.*Own: of its own”",
    "exits": r"raised SystemExit: bye",
    "interrupts": r"raised KeyboardInterrupt:",
    "exits_at_once": r"ended its process with exit status 3:",
    "crashes": r"stopped by SIGSEGV",
    "kills_itself": r"stopped by SIGTERM",
    "recurses": r"raised RecursionError: maximum recursion depth exceeded",
    "answers_no_json": r"raised TypeError: Object of type object is not JSON serializable",
    "closes_everything": r"ended its process with exit status 0",
    "writes_a_large_file": r"raised OSError: .*File too large",
}


@pytest.mark.parametrize("name", ENDS)
def test_an_end_without_an_answer_is_one_sentence(name):
    with pytest.raises(Refusal, match=ENDS[name]) as caught:
        child(name)
    assert "\n" not in str(caught.value)


def test_what_recurses_beyond_the_stack_is_said():
    with pytest.raises(Refusal, match=r"SIGSEGV|RecursionError|MemoryError|memory"):
        child("recurses_without_limit", seconds=20)


@pytest.mark.parametrize("name", ["sleeps", "ignores_signals_and_sleeps", "counts_forever"])
def test_what_does_not_end_is_ended(name):
    begun = time.monotonic()
    with pytest.raises(Refusal, match="must finish within 1 s, but it did not"):
        child(name, seconds=1)
    assert time.monotonic() - begun < 5


def test_memory_is_limited():
    with pytest.raises(Refusal, match="at most 4096 MB of memory"):
        child("allocates", {"gigabytes": 100})
    with pytest.raises(Refusal, match="at most 300 MB of memory"):
        child("allocates", {"gigabytes": 1}, megabytes=300)
    assert child("allocates", {"gigabytes": 1}, megabytes=2048)["size"] == 1 << 30


def test_an_answer_is_as_large_as_it_may_be_and_no_larger():
    assert len(child("answers_much", {"megabytes": 3}, answer_megabytes=4)["text"]) == 3 << 20
    with pytest.raises(Refusal, match="at most 4 MB, but this one has 5 MB"):
        child("answers_much", {"megabytes": 4}, answer_megabytes=4)


def test_of_much_that_is_printed_the_end_is_kept():
    printed = child("prints_much", {"megabytes": 50})["printed"]["stdout"]
    assert len(printed) == 64 << 10
    assert printed.endswith("00000049the end\n")


@pytest.mark.parametrize("name", ["closes_stdout", "leaves_threads", "changes_folder_and_rights"])
def test_an_answer_comes_whatever_the_code_leaves_behind(name):
    assert child(name, seconds=20)["done"] is True


def test_what_the_code_writes_on_the_pipe_is_not_taken_for_the_answer():
    assert child("writes_on_every_pipe", {"times": 1})["done"] is True


def test_a_flood_on_the_pipe_is_refused():
    with pytest.raises(Refusal, match="must not write on pipes"):
        child("writes_on_every_pipe", {"times": 1 << 17}, answer_megabytes=1)


def test_of_a_fork_one_copy_answers():
    assert child("forks")["child"] is False


@pytest.mark.parametrize("name", ["leaves_a_daemon", "sets_the_start_method"])
def test_nothing_is_left_running(name):
    begun = time.monotonic()
    number = child(name)["process"]
    assert time.monotonic() - begun < 10
    # one that has been killed may still be on its way out
    while is_running(number) and time.monotonic() - begun < 15:
        time.sleep(0.01)
    assert not is_running(number)


def is_running(number):
    """Whether a process runs; one that has ended and was not asked about yet does not."""
    try:
        state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_no_folder_and_no_pipe_is_left_behind(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    child("told")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for name in ("told", "changes_folder_and_rights", "forks"):
        child(name)
    for name in ("fails", "exits_at_once", "closes_everything"):
        with pytest.raises(Refusal, match="must run to its end"):
            child(name)
    assert list(tmp_path.iterdir()) == []
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_the_parent_may_be_interrupted_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def interrupted(process):
        raise KeyboardInterrupt

    monkeypatch.setattr("headwise.targets.child.process._has_ended", interrupted)
    with pytest.raises(KeyboardInterrupt):
        child("sleeps")
    assert list(tmp_path.iterdir()) == []


def test_starting_a_child_takes_no_torch():
    source = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[3])!r})
from headwise.targets import in_child
print(in_child("{ENTRIES}:imports_headwise", {{}})["version"], "torch" in sys.modules)
"""
    assert run_fresh(source).split()[1] == "False"
