"""Every length is checked on both sides and weighed, and what would not fit is said."""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

import headwise as hw
from benchmarks import lengths
from benchmarks.harness import Absent, WrongNumbersError
from benchmarks.kernels import Shape
from benchmarks.lengths import beside
from benchmarks.rules import window

SMALL = Shape(L=9, H=3, D=5)
BUILT = {
    "SDPA": lambda: beside(SMALL, "SDPA"),
    "eager": lambda: beside(SMALL, "eager"),
    "window": lambda: beside(SMALL, "SDPA", window(3)),
}


@pytest.mark.parametrize("name", BUILT)
def test_both_sides_of_a_case_give_the_numbers_of_its_definition(name):
    case = BUILT[name]()
    assert case.check() is None
    assert [side()[0].dtype for side in (case.ours, case.theirs)] == [torch.bfloat16] * 2
    assert case.is_weighed


@pytest.mark.parametrize("name", BUILT)
def test_a_case_of_a_wrong_attention_is_refused(name, monkeypatch):
    right = hw.attention
    monkeypatch.setattr(hw, "attention", lambda *inputs, **rules: right(*inputs, **rules) * 1.1)
    with pytest.raises(WrongNumbersError, match="ours is wrong in tensor 0"):
        BUILT[name]().check()


@pytest.mark.parametrize("name", BUILT)
def test_a_case_beside_a_wrong_attention_is_refused(name, monkeypatch):
    def shifted(*inputs, **rules):
        return F.scaled_dot_product_attention(*inputs, **rules) * 1.1

    right = lengths.plain_attention
    monkeypatch.setattr(lengths, "F", SimpleNamespace(scaled_dot_product_attention=shifted))
    monkeypatch.setattr(lengths, "plain_attention", lambda *inputs, **rules: right(*inputs, **rules) * 1.1)
    with pytest.raises(WrongNumbersError, match="theirs is wrong in tensor 0"):
        BUILT[name]().check()


def test_the_window_is_given_to_both_sides(monkeypatch):
    right = hw.attention
    monkeypatch.setattr(hw, "attention", lambda q, k, v, **rules: right(q, k, v))
    with pytest.raises(WrongNumbersError, match="ours is wrong in tensor 0"):
        BUILT["window"]().check()


def test_the_group_takes_each_length_three_ways_and_says_what_would_not_fit(monkeypatch):
    monkeypatch.setattr(lengths, "LENGTHS", (9, 20))
    monkeypatch.setattr(lengths, "LONGEST_EAGER", 9)
    monkeypatch.setattr(lengths, "LONG", 20)
    *cases, absent = lengths.lengths()
    assert [case.check() for case in cases] == [None] * 5
    rows = [(case.name, case.beside, case.shape.rpartition(" ")[2], case.is_long) for case in cases]
    assert rows == [
        ("forward", "SDPA", "L=9", False), ("window(128), forward", "SDPA", "L=9", False),
        ("forward", "eager", "L=9", False),
        ("forward", "SDPA", "L=20", True), ("window(128), forward", "SDPA", "L=20", True),
    ]  # fmt: skip
    assert absent == Absent("forward", "eager", "B=1 H=8 D=64 L=20", "not run: it would hold 0 GB")


def test_eager_code_at_16384_would_hold_26_gigabytes(monkeypatch):
    monkeypatch.setattr(lengths, "LENGTHS", (16384,))
    monkeypatch.setattr(lengths, "beside", lambda *given: None)
    assert [found.reason for found in lengths.lengths() if found] == ["not run: it would hold 26 GB"]
