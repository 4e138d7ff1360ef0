"""Work is counted in operations and numbers, so that what it limits is the same however slow a machine is."""

import threading
import time

import pytest
import torch
from torch import nn

import headwise as hw
from headwise.calls import find
from headwise.diagnosis import child
from headwise.recording.budget import (
    NUMBERS,
    OPERATIONS,
    RECORDED,
    RECORDED_OPERATIONS,
    RECORDING,
    TAKEN,
    Budget,
    Endless,
    spend,
    spent,
)
from headwise.recording.recorder import record
from headwise.recording.torch_limits import Guarded

FAULTY = """
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ask, self.key, self.give, self.mix = (nn.Linear(width, width) for _ in range(4))

    def split(self, x):
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, x, mask=None):
        b, n, c = x.shape
        q, k, v = self.split(self.ask(x)), self.split(self.key(x)), self.split(self.give(x))
        s = q @ k.mT // q.shape[-1] ** 0.5
        if mask is not None:
            s = s.masked_fill(mask == 0, 1e-9)
        y = s.softmax(-1) @ v
        return self.mix(y.contiguous().view(b, n, c))
"""


class Looping(nn.Module):
    def forward(self, query, key, value):
        weights = (query @ key.transpose(-2, -1) / query.shape[-1] ** 0.5).softmax(-1)
        while weights.sum() > 0:
            value = weights @ key
        return value


def test_work_is_counted_by_operations_and_numbers_and_by_this_thread_alone():
    large, small = torch.ones(7 * NUMBERS), torch.ones(3)
    begun = spent()
    with Guarded():
        torch.add(large, 1)
        torch.add(small, 1)
    assert spent() - begun == (1 + 7) + 1
    begun = spent()
    record(lambda: small + 1 - 2)
    assert spent() - begun == RECORDING + 2 * (RECORDED + TAKEN)
    budget = Budget(5)
    other = threading.Thread(target=spend, args=(1000,))
    other.start()
    other.join()
    assert (budget.left, budget.is_over) == (5, False)
    spend(6)
    assert (budget.left, budget.is_over) == (0, True)


def test_a_loop_that_never_ends_is_ended_by_its_operations_and_told():
    def endless():
        with Guarded():
            while True:
                torch.ones(1).add_(1)

    with pytest.raises(Endless, match=f"ran {OPERATIONS} operations of torch and had not ended"):
        endless()
    (failed,) = find(Looping, namespace=globals()).failures
    assert str(failed.error) == f"the call ran {OPERATIONS} operations of torch and had not ended"
    found = hw.doctor(Looping)
    assert found.verdict != "sound"
    assert f"the call ran {RECORDED_OPERATIONS} operations" in f"{found.reason}{[each.what for each in found.findings]}"


def test_a_diagnosis_with_its_patches_is_the_same_where_all_clocks_run_a_thousand_times_as_fast(tmp_path, monkeypatch):
    file = tmp_path / "own.py"
    file.write_text(FAULTY, encoding="utf-8")

    def diagnosed():
        return child.answer({"target": f"{file}:Attention"})["diagnosis"]

    quick = diagnosed()
    kinds = {each["kind"] for each in quick["findings"] if each["patch"]}
    assert kinds == {"scale-floor-division", "mask-weak-fill", "merge-without-transpose"}
    for name in ("time", "monotonic", "perf_counter", "process_time", "thread_time"):
        clock = getattr(time, name)
        monkeypatch.setattr(time, name, lambda clock=clock: 1000 * clock())
    assert diagnosed() == quick
