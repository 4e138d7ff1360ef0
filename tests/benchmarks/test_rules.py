"""A rule says the same thing to us, as a mask, and to everyone else, as a function."""

import pytest
import torch

import headwise as hw
from benchmarks.rules import CAUSAL, PADDED, ROWS, Rule, definition, documents, sampled_rows, window
from headwise.testing import assert_within_budget, exact_attention, plain_attention

RULES = {"causal": CAUSAL, "padded": PADDED, "window": window(3), "documents": documents(3)}
L = 12


@pytest.mark.parametrize("name", RULES)
def test_a_rule_allows_what_its_mask_allows(name):
    rule = RULES[name]
    allowed = rule.allowed(torch.arange(L), L).expand(L, L)
    assert torch.equal(allowed, rule.mask(L).allowed(L, L).expand(1, 1, L, L)[0, 0])
    assert 0 < allowed.sum() < L * L


def test_the_rules_are_the_ones_they_are_named_for():
    rows = torch.arange(4)
    assert window(2).allowed(rows, 4).tolist() == [[j in (i - 1, i) for j in range(4)] for i in range(4)]
    assert documents(2).allowed(rows, 4).tolist() == [[i // 2 == j // 2 for j in range(4)] for i in range(4)]
    assert PADDED.allowed(rows, 4).tolist() == [[True, True, False, False]]


@pytest.mark.parametrize("name", [None, *RULES])
def test_the_definition_gives_the_rows_asked_for(name, monkeypatch):
    # two rows at once, so that there are several parts
    monkeypatch.setattr("benchmarks.rules.ROWS", 2)
    rule, rows = RULES.get(name), torch.tensor([0, 5, 6, 9, 11])
    q, k, v = (torch.randn(1, 3, L, D) for D in (5, 5, 7))
    allowed = None if rule is None else rule.allowed(torch.arange(L), L)
    exact = exact_attention(q, k, v, mask=None if rule is None else rule.mask(L))
    (found,) = definition((q, k, v), rule, rows, torch.float32)
    assert_within_budget(found, exact[:, :, rows], plain_attention(q, k, v, allowed=allowed)[:, :, rows])


def test_the_definition_gives_the_gradients_of_the_whole(monkeypatch):
    monkeypatch.setattr("benchmarks.rules.ROWS", 5)
    q, k, v, weight_of_out = (torch.randn(1, 3, L, 5, dtype=torch.float64, requires_grad=True) for _ in range(4))
    wanted = torch.autograd.grad(exact_attention(q, k, v, mask=hw.causal()), (q, k, v), weight_of_out)
    found = definition((q, k, v), CAUSAL, torch.arange(L), torch.float64, weight_of_out)[1:]
    assert len(found) == 3
    for gradient, exact in zip(found, wanted, strict=True):
        assert_within_budget(gradient, exact, exact)


def test_a_short_input_is_compared_whole_and_a_long_one_in_rows_of_every_place_in_a_tile():
    assert torch.equal(sampled_rows(ROWS), torch.arange(ROWS))
    rows = sampled_rows(8192)
    assert 200 <= len(rows) <= ROWS
    assert len(set((rows % 64).tolist())) == 64
    assert rows[-1] > 8192 - 64


def test_a_rule_may_say_two_things_only_to_be_refused():
    from benchmarks.harness import WrongNumbersError
    from benchmarks.kernels import Shape, beside_sdpa

    torn = Rule("torn", lambda L: hw.window(keys=2), window(3).holds)
    with pytest.raises(WrongNumbersError, match="ours is wrong in tensor 0"):
        beside_sdpa(Shape(L, H=3, D=5), rule=torn).check()
