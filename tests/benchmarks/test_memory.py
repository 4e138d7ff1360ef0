"""Each case of memory is checked on a small input, and what it weighs is the large one."""

import pytest
import torch

import headwise as hw
from benchmarks import memory
from benchmarks.harness import QUICK, WrongNumbersError, measure
from benchmarks.kernels import Shape
from benchmarks.memory import additive_memory, entropy_gradient, whole_map
from benchmarks.peak import why_not

SMALL = Shape(L=24, H=3, D=5)
BUILT = {
    "additive": lambda: additive_memory(SMALL),
    "gradient": lambda: entropy_gradient(SMALL),
    "map": lambda: whole_map(SMALL, top=2, pixels=4),
}


@pytest.mark.parametrize("name", BUILT)
def test_a_case_gives_the_numbers_of_the_dense_map(name):
    case = BUILT[name]()
    assert case.check() is None
    assert len(case.ours()) == {"additive": 1, "gradient": 2, "map": 6}[name]
    assert case.is_in_bytes


@pytest.mark.parametrize("name", ["gradient", "map"])
def test_the_map_of_other_queries_is_refused(name, monkeypatch):
    right = memory.attention_map
    monkeypatch.setattr(memory, "attention_map", lambda q, k: right(q * 1.01, k))
    with pytest.raises(WrongNumbersError, match="ours is wrong in tensor"):
        BUILT[name]().check()


@pytest.mark.parametrize(("name", "function"), [("additive", "additive_attention"), ("map", "attention")])
def test_a_wrong_output_is_refused(name, function, monkeypatch):
    right = getattr(hw, function)
    monkeypatch.setattr(hw, function, lambda *inputs: right(*inputs) * 1.01)
    with pytest.raises(WrongNumbersError, match="ours is wrong in tensor 0"):
        BUILT[name]().check()


def test_the_gradient_of_another_loss_is_refused(monkeypatch):
    right = hw.AttentionMap.entropy
    monkeypatch.setattr(hw.AttentionMap, "entropy", lambda self: 1.01 * right(self))
    with pytest.raises(WrongNumbersError, match="ours is wrong in tensor 0"):
        BUILT["gradient"]().check()


@pytest.mark.parametrize("reading", ["entropy", "received", "topk", "pooled"])
def test_a_wrong_reading_is_refused(reading, monkeypatch):
    def shifted(self, *sizes):
        found = right(self, *sizes)
        return (found[0] * 1.01, found[1]) if isinstance(found, tuple) else found * 1.01

    right = getattr(hw.AttentionMap, reading)
    monkeypatch.setattr(hw.AttentionMap, reading, shifted)
    with pytest.raises(WrongNumbersError, match="ours is wrong in tensor"):
        BUILT["map"]().check()


@pytest.mark.parametrize("build", [entropy_gradient, lambda at: whole_map(at, top=2, pixels=4)])
def test_the_check_runs_small_and_the_weighed_call_large(build, monkeypatch):
    lengths = []
    right = memory.attention_map
    monkeypatch.setattr(memory, "SMALL", 32)
    monkeypatch.setattr(memory, "attention_map", lambda q, k: lengths.append(q.shape[2]) or right(q, k))
    case = build(Shape(L=48, H=3, D=5))
    case.check()
    assert lengths == [32]
    case.ours()
    assert lengths == [32, 48]


def test_a_plain_form_holds_every_sum_and_ours_does_not():
    at = Shape(L=320, H=3, D=32)
    plain = 4 * at.H * at.L**2 * at.D
    case = additive_memory(at)
    found = None if why_not() else measure(case, QUICK)
    assert found is None or plain <= found.theirs <= 3 * plain
    assert found is None or 0 < found.ours < plain / 4


def test_a_dense_map_is_named_by_its_size_and_not_run():
    case = entropy_gradient(Shape(L=48, H=3, D=5))
    assert case.theirs is None
    assert memory._dense(Shape(32768, H=12)) == "dense map 51.5 GB"


def test_the_group_passes_its_checks_at_a_32nd_of_its_lengths(monkeypatch):
    monkeypatch.setattr(memory, "Shape", lambda L, H=8, D=64: Shape(L // 32, H, D))
    cases = list(memory.memory())
    assert [case.check() for case in cases] == [None] * 3
    assert [case.is_long for case in cases] == [False, True, True]
    assert [(case.quantity.name, case.quantity.unit, case.target) for case in cases] == [
        ("theirs/ours", "x", 50), ("ours", "MB", 500), ("ours", "MB", 1000),
    ]  # fmt: skip
    assert all(isinstance(each, torch.Tensor) for case in cases for each in case.ours())
