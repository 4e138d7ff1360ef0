"""Parts of a job run on threads that leave torch as it was."""

import threading

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from headwise.maps.workers import run_parts


class Followed(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


def threads_of_torch() -> list[int]:
    """How many threads torch has in a thread that starts now."""
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    return found


def test_every_part_runs_once_and_torch_keeps_its_threads():
    before, found, names = torch.get_num_threads(), [], set()

    def work(part):
        names.add(threading.current_thread().name)
        found.append((part, torch.get_num_threads()))

    run_parts(work, range(7), most=3)
    assert sorted(found) == [(part, max(1, before // 3)) for part in range(7)]
    assert threading.current_thread().name not in names
    assert torch.get_num_threads() == before
    assert threads_of_torch() == [before]


def test_a_worker_keeps_its_share_of_the_threads_when_torch_first_asks_for_their_number():
    torch.set_num_threads(6)
    found = []

    def work(part):
        # an operation that torch splits among threads asks how many there are
        torch.ones(1 << 17).sum()
        found.append(torch.get_num_threads())

    run_parts(work, range(4), most=2)
    assert found == [3] * 4
    assert torch.get_num_threads() == 6


def test_the_first_error_is_raised_when_all_have_stopped():
    before, begun = torch.get_num_threads(), []

    def work(part):
        begun.append(part)
        if part == 0:
            raise ValueError(f"part {part} of {len(range(50))}")

    with pytest.raises(ValueError, match="part 0 of 50"):
        run_parts(work, range(50), most=2)
    assert threading.active_count() == sum(not t.name.startswith("headwise") for t in threading.enumerate())
    assert torch.get_num_threads() == before
    assert len(begun) <= 50


@pytest.mark.parametrize("mode", [Followed, torch.overrides.TorchFunctionMode])
def test_a_mode_sees_the_operations_of_every_part(mode):
    found = []
    with mode():
        run_parts(lambda part: found.append(threading.current_thread()), range(4), most=2)
    assert found == [threading.current_thread()] * 4


def test_where_no_thread_can_start_the_parts_run_here(monkeypatch):
    # as while the interpreter is ending
    def refuse(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    before, found = torch.get_num_threads(), []
    run_parts(lambda part: found.append((part, threading.current_thread())), range(5), most=3)
    assert found == [(part, threading.current_thread()) for part in range(5)]
    assert torch.get_num_threads() == before
