"""Heads split over ranks give the numbers of one process: outputs, every gradient, caches."""

import copy

import pytest
import torch

import headwise as hw
from headwise.testing import assert_within_budget
from tests.distributed.ranks import on_ranks
from tests.distributed.split import CASES, Made, made, made_by_rank


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
