"""Every case compares two sides that compute the same, and refuses itself where one does not."""

import pytest
import torch
from torch import nn

import headwise as hw
from benchmarks.decode import appends, step
from benchmarks.harness import WrongNumbersError
from benchmarks.imports import imports, python
from benchmarks.layer import Sizes, beside_torch, beside_written, training_beside_torch

SMALL = Sizes(B=2, L=5, E=12, H=3)
BUILT = {
    "forward": lambda: beside_torch(SMALL, has_grad=False),
    "forward with grad": lambda: beside_torch(SMALL, has_grad=True),
    "training": lambda: training_beside_torch(SMALL, need_weights=False),
    "training with weights": lambda: training_beside_torch(SMALL, need_weights=True),
    "training with dropout": lambda: training_beside_torch(SMALL, need_weights=False, dropout=0.1),
    "separate": lambda: beside_written(SMALL, "separate"),
    "packed": lambda: beside_written(SMALL, "packed", has_grad=True),
    "decode": lambda: step(S=7, H=6, Hk=3, D=5),
    "append": lambda: appends(tokens=10, times=2, Hk=3, D=5),
}


@pytest.mark.parametrize("name", BUILT)
def test_both_sides_of_a_case_give_the_numbers_of_its_definition(name):
    case = BUILT[name]()
    assert case.check() is None
    assert len(case.ours()) == len(case.theirs()) or name.startswith("training")


@pytest.mark.parametrize("name", [name for name in BUILT if name not in ("decode", "append")])
def test_a_case_of_a_wrong_layer_is_refused(name, monkeypatch):
    def shifted(self, *inputs, **rules):
        return right(self, *inputs, **rules) * 1.001

    right = hw.MultiHeadAttention.forward
    monkeypatch.setattr(hw.MultiHeadAttention, "forward", shifted)
    with pytest.raises(WrongNumbersError, match="ours is wrong in tensor 0"):
        BUILT[name]().check()


def test_a_case_of_a_wrong_attention_is_refused(monkeypatch):
    monkeypatch.setattr(hw, "attention", lambda q, k, v, mask: v[:, :1, :1].expand(q.shape).contiguous())
    with pytest.raises(WrongNumbersError, match="ours is wrong in tensor 0"):
        BUILT["decode"]().check()


def test_a_case_of_a_wrong_cache_is_refused(monkeypatch):
    def forgetful(self, k, v, *rules, **more):
        return right(self, k, torch.zeros_like(v), *rules, **more)

    right = hw.KVCache.extend
    monkeypatch.setattr(hw.KVCache, "extend", forgetful)
    with pytest.raises(WrongNumbersError, match="ours is wrong in tensor 1"):
        BUILT["append"]().check()


@pytest.mark.parametrize("side", ["ours", "theirs"])
def test_a_layer_that_drops_nothing_is_refused(side, monkeypatch):
    # both sides are told to drop by this attribute, and may not listen
    layer = hw.MultiHeadAttention if side == "ours" else nn.MultiheadAttention
    right = layer.__setattr__
    monkeypatch.setattr(
        layer, "__setattr__", lambda self, name, value: right(self, name, 0.0 if name == "dropout" else value)
    )
    with pytest.raises(WrongNumbersError, match=f"{side} gives the same output twice, so it drops nothing"):
        BUILT["training with dropout"]().check()


def test_a_layer_is_left_dropping_once_it_is_checked():
    case = BUILT["training with dropout"]()
    case.check()
    assert [torch.equal(run()[0], run()[0]) for run in (case.ours, case.theirs)] == [False, False]
    assert (case.name, BUILT["training"]().name) == ("train, dropout 0.1, f+b", "forward+backward train")


@pytest.mark.parametrize("has_grad", [False, True])
def test_gradients_are_on_where_the_case_says_so(has_grad):
    for case in (beside_torch(SMALL, has_grad=has_grad), beside_written(SMALL, "separate", has_grad=has_grad)):
        found = [side()[0].requires_grad for side in (case.ours, case.theirs)]
        assert found == [has_grad, has_grad]


def test_the_biases_of_the_layer_beside_ours_are_not_zero():
    # zeros would hide a bias that one side forgets
    layer = nn.MultiheadAttention(4, 2)
    assert layer.in_proj_bias.abs().sum() == 0
    assert beside_torch(SMALL, has_grad=False).theirs()[0].mean().abs() > 0


def test_a_process_that_fails_is_refused_with_its_last_words():
    with pytest.raises(WrongNumbersError, match=r"python -c raise KeyError.3. ended with status 1: KeyError: 3"):
        python("-c", "raise KeyError(3)")()


def test_the_processes_of_the_imports_are_compared_with_those_without_us():
    first, second = imports()
    assert (first.beside, second.beside) == ("import torch", "python -c pass")
    assert first.check() is None
