"""Biases by distance: the numbers of the module, in memory that far positions do not set."""

import pytest
import torch

from headwise.positions import Alibi, RelativeBias
from headwise.positions.distance_bias import distance_bias

FAR = torch.tensor([0, 1, 2, 50_000_000, 1_700_000_000, 1])
POSITIONS = {
    "far": (FAR, FAR),
    "far, two samples": (torch.stack([FAR, FAR.flip(0)]), FAR),
    "far keys": (torch.arange(300), torch.arange(4) * 1_000_000),
    "near": (torch.arange(5), torch.arange(7)),
    "no keys": (torch.arange(5), torch.arange(0)),
}


@pytest.mark.parametrize("name", POSITIONS)
@pytest.mark.parametrize("module", [Alibi().build(2), RelativeBias().build(2)], ids=["alibi", "relative"])
def test_numbers_are_those_of_the_module_and_no_more_than_pairs(module: torch.nn.Module, name: str) -> None:
    i, j = POSITIONS[name]
    of_map = distance_bias(module, i, j)
    assert torch.equal(of_map.whole, module(i, j))
    samples = i.shape[0] if i.ndim == 2 else 1
    assert of_map.numbers.shape[1] <= max(1, samples * i.shape[-1] * j.shape[-1])


def test_a_gradient_reaches_the_table_from_far_positions() -> None:
    module = RelativeBias().build(2)
    weights = torch.randn(1, 2, 6, 6)
    (want,) = torch.autograd.grad((module(FAR, FAR) * weights).sum(), tuple(module.parameters()))
    of_map = distance_bias(module, FAR, FAR)
    into = torch.zeros_like(of_map.numbers)
    of_map.distances.add_gradient(into, torch.arange(6), torch.arange(6), weights)
    (got,) = torch.autograd.grad(of_map.numbers, tuple(module.parameters()), into)
    torch.testing.assert_close(got, want)
