"""A mask that is made for a call leaves every row a key, on whichever axis its keys lie."""

import pytest
from torch import nn

from headwise.calls.plan import Plan

SIZES = {"B": 3, "H": 2, "L": 5, "S": 7}


@pytest.mark.parametrize(
    ("shape", "keys"),
    [
        (["B", "S"], -1),
        (["B", "1", "L", "S"], -1),
        (["H", "B", "L", "S"], -1),
        (["1", "B", "1", "S"], -1),
        (["S", "B"], 0),
        (["L", "S", "B"], 1),
        (["L", "S", "B", "1"], 1),
    ],
    ids=str,
)
def test_each_row_of_a_mask_sees_its_first_key_and_not_its_last(shape, keys):
    said = {"argument": "mask", "means": "attend", "shape": shape}
    mask = Plan(nn.Identity(), "cross", {}, {"_mask": said}, ()).arguments(SIZES)[1]["mask"].movedim(keys, -1)
    assert mask.shape[-1] == SIZES["S"]
    assert bool(mask[..., 0].all())
    assert not bool(mask[..., -1].any())
