"""A diagnosis holds no more than it needs: room for tokens is small, runs are let go, copies are shared."""

from dataclasses import replace
from math import prod

import torch
from torch import nn

from headwise.calls import evaluated, find
from headwise.calls.symbols import LEGEND, MORE
from headwise.dataflow import Run
from headwise.diagnosis.entry_point import doctor
from headwise.diagnosis.examination import Examination
from headwise.diagnosis.plans.small_sizes import WORD, small
from headwise.diagnosis.run_memory import HELD
from headwise.recording import record


class Roomy(nn.Module):
    def __init__(self, dim, n_heads, max_batch_size=32, max_seq_len=2048):
        super().__init__()
        self.n_heads = n_heads
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.cache_k = torch.zeros(max_batch_size, max_seq_len, dim)

    def forward(self, x):
        batch, length, dim = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.n_heads, -1).permute(2, 0, 3, 1, 4)
        self.cache_k[:batch, :length] = k.transpose(1, 2).reshape(batch, length, dim)
        weights = (q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).reshape(batch, length, dim))


def test_room_for_tokens_is_larger_than_any_count_of_them_and_no_more_than_needed():
    (plan,) = find(Roomy, namespace=globals(), user_files=(__file__,)).plans
    sizes = small(plan)
    rooms = [sizes["max_batch_size"], sizes["max_seq_len"]]
    assert len({*rooms, sizes["B"], sizes["L"]}) == 4
    assert 3 * max(sizes["B"], sizes["L"]) < min(rooms)
    assert max(rooms) < 40


def test_runs_are_let_go_before_they_fill_the_memory(monkeypatch):
    (plan,) = find(Roomy, namespace=globals(), user_files=(__file__,)).plans
    exam = Examination(plan, (__file__,))
    one = exam.run()
    assert one.size > 27 * 29 * 8
    # as if each run held a third of what may be held
    monkeypatch.setattr(Run, "size", HELD // 3)
    for seed in range(1, 6):
        exam.run(seed=seed)
    assert exam.run(seed=5) is exam.run(seed=5)
    assert len(exam.checks.memory.kept) == 3
    assert exam.run() is not one


def test_what_a_tensor_holds_is_copied_once_while_it_stays_the_same():
    def call():
        x = torch.ones(3)
        y = x * 2
        x.data.add_(5)
        return y + x

    first, second = record(call, values=True).operations[1], record(call, values=True).operations[-1]
    assert first.inputs[0].value.tolist() == [1.0, 1.0, 1.0]
    # a change that torch does not count is seen all the same
    assert second.inputs[1].value.tolist() == [6.0, 6.0, 6.0]
    done = record(lambda: torch.ones(3) * 2 + 1, values=True).operations
    assert done[1].inputs[0].value is done[0].outputs[0].value


WIDE = """import math
import torch
from torch import nn


class Wide(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        assert dim % heads == 0
        self.h = heads
        self.scale = 1 / math.sqrt(dim // heads if dim < 60 else dim)
        self.qkv, self.o = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.h, d // self.h).permute(2, 0, 3, 1, 4)
        w = torch.softmax(q @ k.transpose(-2, -1) * self.scale, dim=-1)
        return self.o((w @ v).transpose(1, 2).reshape(b, n, d))
"""


def test_what_shows_at_the_sizes_alone_that_the_person_gave_is_told(tmp_path):
    (tmp_path / "wide.py").write_text(WIDE, encoding="utf-8")

    def told(**init):
        return doctor(f"{tmp_path / 'wide.py'}:Wide", init=init or None)

    assert (told().faults, told(dim=48, heads=4).faults) == ((), ())
    found = told(dim=64, heads=4)
    assert [(each.kind, each.line, each.proved) for each in found.faults] == [("scale-wrong", 11, True)]
    assert "D=64" in found.examined["sizes"]
    assert told(dim=9999, heads=9).examined["sizes"] == "no: they are wider than what is tried"


def test_where_what_the_person_says_fails_that_failure_and_its_line_are_the_reason(tmp_path):
    (tmp_path / "wide.py").write_text(WIDE, encoding="utf-8")
    target = f"{tmp_path / 'wide.py'}:Wide"
    found = doctor(target, init={"dim": 65, "heads": 4})
    assert found.verdict == "not examined"
    assert found.reason.startswith("With --init as given it cannot be built or called (AssertionError [9: assert dim %")
    found = doctor(target, call={"x": ["B", "L"]})
    assert "With --call as given" in found.reason
    assert "(ValueError: not enough values to unpack (expected 3, got 2) [15: b, n, d = x.shape])" in found.reason


def test_there_are_few_windows_as_these_multiply_all():
    (plan,) = find(Roomy, namespace=globals(), user_files=(__file__,)).plans
    windows = [each for each in {**LEGEND, **MORE}.values() if each.said == "windows"]
    sizes = small(replace(plan, symbols=(*plan.symbols, *windows)))
    counts = {sizes[each.name] for each in windows}
    assert len(counts) == len(windows) > 1
    assert prod(counts) < sizes["B"] * sizes["L"]


class Windows(nn.Module):
    """Windows of an image that it is built for."""

    def __init__(self, dim, resolution, heads, window=7):
        super().__init__()
        self.sides, self.window, self.heads = resolution, window, heads
        assert resolution[0] % window == 0
        assert resolution[1] % window == 0
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x):
        (h, w), size = self.sides, self.window
        b, count, width = x.shape
        assert count == h * w
        x = x.view(b, h // size, size, w // size, size, width).transpose(2, 3).reshape(-1, size * size, width)
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = self.out(nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x.view(b, h // size, w // size, size, size, width).transpose(2, 3).reshape(b, count, width)


def test_sizes_that_follow_from_others_follow_from_those_that_were_made_small():
    plan = find(Windows, namespace=globals(), user_files=(__file__,)).plans[0]
    sizes = small(plan)
    bound = {each.name: each.equals for each in plan.symbols if each.equals}
    # the image follows from the windows, and its tokens from the image
    assert any(set(WORD.findall(equals)) & bound.keys() for equals in bound.values())
    assert {name: sizes[name] for name in bound} == {name: evaluated(equals, sizes) for name, equals in bound.items()}
    assert prod(sizes[each] for each in "BLD") < 10**5


HUGE = """import torch
from torch import nn

SEEN = []


class Insists(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.qkv = nn.Linear(dim, 3 * dim)

    def forward(self, x):
        SEEN.append(x.numel())
        if x.shape[1] != 9000:
            raise ValueError("9000 tokens are wanted")
        return self.qkv(x)


if __name__ == "__main__":
    Insists(512, 8)(torch.randn(8, 9000, 512))
"""


def test_what_a_file_runs_under_its_main_guard_is_not_run_where_that_would_take_the_machine(tmp_path):
    file = tmp_path / "huge.py"
    file.write_text(HUGE, encoding="utf-8")
    space = {"__name__": "huge", "__file__": str(file)}
    exec(compile(HUGE, str(file), "exec"), space)
    found = find(space["Insists"], namespace=space, user_files=(str(file),))
    assert not found.plans
    assert 0 < max(space["SEEN"]) < 8 * 9000 * 512
