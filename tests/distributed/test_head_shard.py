"""Heads split over ranks give the numbers of one process: outputs, every gradient, caches."""

import copy

import pytest
import torch

import headwise as hw
from headwise.testing import assert_within_budget
from tests.distributed.ranks import on_ranks
from tests.distributed.split import (
    CASES,
    E,
    L,
    Made,
    decoded,
    decoded_by_rank,
    inputs,
    made,
    made_by_rank,
    seen_by_head,
    split,
    sums_of_a_step,
)


def assert_same_numbers(came: list[Made], exact: Made, plain: Made) -> None:
    """The budget of every output and gradient; biases with their weights, since that of keys has a gradient of 0."""
    for each in came:
        assert each.gradients.keys() == exact.gradients.keys()
        assert torch.equal(each.out, came[0].out)
        assert all(torch.equal(each.gradients[name], t) for name, t in came[0].gradients.items())
    assert_within_budget(came[0].out, exact.out, plain.out)
    modules = {name: name.removesuffix(".bias").removesuffix(".weight") for name in exact.gradients}
    for module in set(modules.values()):
        names = [name for name, of in modules.items() if of == module]
        actual, wanted, measure = (
            torch.cat([each.gradients[name].flatten() for name in names]) for each in (came[0], exact, plain)
        )
        assert_within_budget(actual, wanted, measure)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("name", CASES)
def test_any_number_of_ranks_gives_the_numbers_of_one_process(name: str, ranks: int) -> None:
    case = CASES[name]
    layer = case.build()
    exact, plain = (
        made(copy.deepcopy(layer).double(), case.call, torch.float64),
        made(copy.deepcopy(layer), case.call, torch.float32),
    )
    assert_same_numbers(on_ranks(ranks, made_by_rank, ranks, layer, case.call), exact, plain)


KINDS = {"growing": {}, "static": {"length": 12, "batch": 2}, "window": {"window": 4, "sinks": 1}}


@pytest.mark.parametrize("name", ["Hk=4", "Hk=3", "rotary", "alibi", "7 heads", "rms"])
@pytest.mark.parametrize("kind", KINDS)
def test_decoding_over_a_cache_gives_the_numbers_of_one_process(name: str, kind: str) -> None:
    layer = CASES[name].build()
    mask = hw.causal() & hw.rule(seen_by_head)
    exact = decoded(copy.deepcopy(layer).double(), torch.float64, KINDS[kind], mask)
    plain = decoded(layer, torch.float32, KINDS[kind], mask)
    for ranks in (2, 3):
        for came in on_ranks(ranks, decoded_by_rank, ranks, layer, KINDS[kind], mask):
            assert_within_budget(came, exact, plain)


# one forward and one backward; one for each further input, and for each parameter that all ranks hold whole
SUMS = {"12 heads": 2, "Hk=4": 2, "relative": 2, "sink": 2, "cross, one width": 3, "cross": 4, "layer": 6, "Hk=1": 6}


@pytest.mark.parametrize("name", SUMS)
def test_a_step_sums_over_the_ranks_as_often_as_is_told(name: str) -> None:
    assert on_ranks(2, sums_of_a_step, 2, CASES[name]) == [SUMS[name]] * 2


def _second(_: int, ranks: int, layer: hw.MultiHeadAttention) -> torch.Tensor:
    part = split(layer, ranks) if ranks else layer
    x = inputs()["x"].double().requires_grad_()
    (first,) = torch.autograd.grad(part(x, mask=hw.causal()).square().sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), x)
    return second


def test_second_derivatives_are_those_of_one_process() -> None:
    layer = CASES["Hk=1"].build().double()
    exact = _second(0, 0, layer)
    for came in on_ranks(2, _second, 2, layer):
        torch.testing.assert_close(came, exact)


def _wrong_heads(rank: int, layer: hw.MultiHeadAttention, given: str) -> str:
    part, heads = split(layer, 2), 6
    wrong = {"mask": hw.allowed(torch.ones(1, heads, L, L).bool()), "attn_bias": torch.zeros(1, heads, L, L)}
    try:
        part(inputs()["x"], **{given: wrong[given]})
    except hw.errors.AttentionError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("given", ["mask", "attn_bias"])
def test_a_mask_or_bias_of_the_heads_of_one_rank_is_refused_on_all(given: str) -> None:
    for said in on_ranks(2, _wrong_heads, CASES["12 heads"].build(), given):
        assert "=12" in said
        assert "6" in said


def _changed_later(_: int, layer: hw.MultiHeadAttention) -> str:
    part = split(layer, 2)
    part.q_proj.weight = torch.nn.Parameter(torch.zeros(24, E))
    try:
        part(inputs()["x"])
    except hw.errors.ArgumentError as error:
        return str(error)
    return ""


def test_a_parameter_that_came_after_the_plan_is_refused() -> None:
    assert all("q_proj.weight came after" in said for said in on_ranks(2, _changed_later, CASES["12 heads"].build()))
