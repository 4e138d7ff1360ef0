"""Each kernel case compares what it times, and refuses another attention, another dropout and another rule."""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

import headwise as hw
from benchmarks import kernels
from benchmarks.harness import WrongNumbersError
from benchmarks.kernels import Shape, additive, beside_sdpa, growth
from benchmarks.layer import Sizes
from benchmarks.rules import CAUSAL, PADDED, documents, window

SMALL = Shape(L=7, H=3, D=5)
# enough weights to tell shares of dropout apart
MANY = Shape(L=70, H=3, D=13)
BUILT = {
    "forward": lambda: beside_sdpa(SMALL),
    "bfloat16": lambda: beside_sdpa(SMALL, torch.bfloat16),
    "backward": lambda: beside_sdpa(SMALL, has_backward=True),
    "bfloat16 backward": lambda: beside_sdpa(SMALL, torch.bfloat16, has_backward=True),
    "causal": lambda: beside_sdpa(SMALL, rule=CAUSAL),
    "padded": lambda: beside_sdpa(SMALL, rule=PADDED),
    "window": lambda: beside_sdpa(SMALL, rule=window(3)),
    "window backward": lambda: beside_sdpa(SMALL, rule=window(3), has_backward=True),
    "documents": lambda: beside_sdpa(SMALL, rule=documents(2)),
    "dropout": lambda: beside_sdpa(MANY, dropout=0.1),
    "dropout backward": lambda: beside_sdpa(MANY, dropout=0.1, has_backward=True),
    "growth": lambda: growth(SMALL, times=4, rule=window(3)),
    "additive": lambda: additive(SMALL),
}
WITH_DROPOUT = ["dropout", "dropout backward"]
BESIDE_SDPA = [name for name in BUILT if name not in ("growth", "additive")]


@pytest.mark.parametrize("name", BUILT)
def test_both_sides_of_a_case_give_the_numbers_of_its_definition(name):
    case = BUILT[name]()
    assert case.check() is None
    assert len(case.ours()) == len(case.theirs()) == (4 if "backward" in name else 1)


@pytest.mark.parametrize("name", BUILT)
def test_a_case_of_a_wrong_attention_is_refused(name, monkeypatch):
    function = "additive_attention" if name == "additive" else "attention"
    right = getattr(hw, function)
    monkeypatch.setattr(hw, function, lambda *inputs, **rules: right(*inputs, **rules) * 1.1)
    with pytest.raises(WrongNumbersError, match="ours is wrong in tensor 0"):
        BUILT[name]().check()


@pytest.mark.parametrize("name", BESIDE_SDPA)
def test_a_case_beside_a_wrong_attention_is_refused(name, monkeypatch):
    def shifted(*inputs, **rules):
        return F.scaled_dot_product_attention(*inputs, **rules) * 1.1

    monkeypatch.setattr(kernels, "F", SimpleNamespace(scaled_dot_product_attention=shifted))
    with pytest.raises(WrongNumbersError, match="theirs is wrong in tensor 0"):
        BUILT[name]().check()


def test_a_plain_form_that_is_wrong_is_refused(monkeypatch):
    # the definition, which also calls it, is kept right: it gives one head at a time
    right = kernels.plain_additive
    monkeypatch.setattr(
        kernels, "plain_additive", lambda q, *others: right(q, *others) * (1.1 if q.shape[1] == SMALL.H else 1)
    )
    with pytest.raises(WrongNumbersError, match="theirs is wrong in tensor 0"):
        BUILT["additive"]().check()


@pytest.mark.parametrize("name", ["backward", "window backward"])
def test_a_case_of_a_wrong_gradient_is_refused(name, monkeypatch):
    def doubled(q, k, v, **rules):
        return right(q, k, 2 * v - v.detach(), **rules)

    right = hw.attention
    monkeypatch.setattr(hw, "attention", doubled)
    with pytest.raises(WrongNumbersError, match="ours is wrong in tensor 3"):
        BUILT[name]().check()


@pytest.mark.parametrize("name", ["causal", "padded", "window", "documents", "growth"])
def test_a_case_without_its_mask_is_refused(name, monkeypatch):
    right = hw.attention
    monkeypatch.setattr(hw, "attention", lambda q, k, v, **rules: right(q, k, v))
    with pytest.raises(WrongNumbersError, match="ours is wrong in tensor 0"):
        BUILT[name]().check()


@pytest.mark.parametrize("name", WITH_DROPOUT)
@pytest.mark.parametrize(
    ("chance", "sentence"),
    [
        (lambda given: 2 * given, "ours raises what dropout 0.1 keeps by 1.25, not 1.11111"),
        (lambda given: 0.0, "ours raises what dropout 0.1 keeps by 1, not 1.11111"),
    ],
    ids=["twice", "none"],
)
def test_a_case_that_drops_another_share_is_refused(name, chance, sentence, monkeypatch):
    def other(*inputs, dropout, **rules):
        return right(*inputs, dropout=chance(dropout), **rules)

    right = hw.attention
    monkeypatch.setattr(hw, "attention", other)
    with pytest.raises(WrongNumbersError, match=sentence):
        BUILT[name]().check()


@pytest.mark.parametrize("name", WITH_DROPOUT)
def test_a_case_beside_one_that_drops_another_share_is_refused(name, monkeypatch):
    def twice(*inputs, dropout_p, **rules):
        return F.scaled_dot_product_attention(*inputs, dropout_p=2 * dropout_p, **rules)

    monkeypatch.setattr(kernels, "F", SimpleNamespace(scaled_dot_product_attention=twice))
    with pytest.raises(WrongNumbersError, match=r"theirs raises what dropout 0\.1 keeps by 1\.25, not 1\.11111"):
        BUILT[name]().check()


def test_a_case_that_drops_others_backward_is_refused(monkeypatch):
    def torn(*inputs, **rules):
        # the numbers of one draw, and the gradients of another
        first, second = right(*inputs, **rules), right(*inputs, **rules)
        return first.detach() + (second - second.detach())

    right = hw.attention
    monkeypatch.setattr(hw, "attention", torn)
    assert BUILT["dropout"]().check() is None
    with pytest.raises(WrongNumbersError, match="ours drops other weights backward"):
        BUILT["dropout backward"]().check()


def test_growth_times_the_long_input_beside_the_short_one_and_checks_both(monkeypatch):
    case = BUILT["growth"]()
    assert [side()[0].shape[2] for side in (case.ours, case.theirs)] == [28, 7]
    assert (case.beside, case.shape) == ("the same at L=7", "B=1 H=3 D=5 L=28")
    right = hw.attention
    for L in (7, 28):
        wrong_at = lambda q, k, v, L=L, **rules: right(q, k, v, **rules) * (1.1 if q.shape[2] == L else 1)  # noqa: E731
        monkeypatch.setattr(hw, "attention", wrong_at)
        with pytest.raises(WrongNumbersError, match="ours is wrong"):
            case.check()


@pytest.mark.parametrize(
    ("rule", "pairs"),
    [(None, 49), (CAUSAL, 28), (PADDED, 21), (window(3), 1 + 2 + 5 * 3), (documents(2), 16 + 9)],
    ids=["all", "causal", "padded", "window", "documents"],
)
def test_the_products_of_a_case_are_those_of_the_pairs_that_its_rule_leaves(rule, pairs):
    assert beside_sdpa(SMALL, rule=rule).flops == 4 * 5 * 3 * pairs
    assert beside_sdpa(SMALL, rule=rule, has_backward=True).flops == 14 * 5 * 3 * pairs


def test_the_group_passes_its_checks_at_a_64th_of_its_lengths(monkeypatch):
    monkeypatch.setattr(kernels, "Shape", lambda L, H=8, D=64: Shape(L // 64, H, D))
    monkeypatch.setattr(kernels, "Sizes", lambda B, L: Sizes(B, L // 64))
    monkeypatch.setattr(kernels, "LONG", kernels.LONG // 64)
    cases = list(kernels.kernels())
    assert [case.check() for case in cases] == [None] * 16
    assert len({(case.name, case.beside, case.shape, case.dtype) for case in cases}) == 16
    assert [case.shape.rpartition("L=")[2] for case in cases if case.is_long] == ["128", "128", "512", "128"]
    assert all(case.target is not None for case in cases)
