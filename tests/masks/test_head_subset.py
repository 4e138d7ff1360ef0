"""Some heads of a mask are those heads of its dense form."""

import pytest
import torch

import headwise as hw
from headwise.masks.head_subset import some_heads

DENSE = torch.rand(2, 6, 5, 7, generator=torch.Generator().manual_seed(0)) > 0.5
MASKS = {
    "dense": hw.allowed(DENSE),
    "joined": (hw.allowed(DENSE) | ~hw.causal()) & hw.keys(torch.ones(2, 7).bool()),
    "rule": hw.rule(lambda b, h, i, j: (i + j) % (h + 1) == b) & hw.causal(),
    "indexed": ~hw.masks.from_flex(lambda b, h, i, j: (i + j) % (h + 1) == b),
    "moved": hw.allowed(DENSE).at(torch.arange(5), torch.arange(7), columns=torch.arange(7).flip(0)),
}


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize(("first", "past"), [(0, 6), (0, 2), (2, 6), (3, 4)])
def test_some_heads_see_what_they_see_among_all(name: str, first: int, past: int) -> None:
    whole = MASKS[name].allowed(5, 7, batch=2, heads=6)
    part = some_heads(MASKS[name], (first, past, 6)).allowed(5, 7, batch=2, heads=past - first)
    assert torch.equal(part.expand(2, past - first, 5, 7), whole[:, first:past])


def test_a_mask_for_all_heads_alike_stays_the_object_it_is() -> None:
    mask = hw.causal() & hw.lengths([7, 3])
    assert some_heads(mask, (1, 3, 6)) is mask
    assert some_heads(None, (1, 3, 6)) is None


def test_the_same_heads_are_kept_with_the_mask() -> None:
    mask = hw.allowed(DENSE)
    assert some_heads(mask, (1, 3, 6)) is some_heads(mask, (1, 3, 6))


def test_a_mask_of_other_heads_is_refused() -> None:
    with pytest.raises(hw.errors.MaskError, match=r"H=12, but .* has 6"):
        some_heads(hw.allowed(DENSE), (0, 6, 12))
