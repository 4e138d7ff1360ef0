"""A map that is handed out as it is has a sum of its own for each head."""

import pytest

from tests.diagnosis.written import found_in, line_of

MAP = '''import torch
from torch import nn


class Map(nn.Module):
    """q: (batch, queries, query_dim), feat: (batch, feat_dim, height, width)"""

    def __init__(self, query_dim, feat_dim, heads):
        super().__init__()
        self.heads = heads
        self.ask, self.match = nn.Linear(query_dim, heads * 8), nn.Conv2d(feat_dim, heads * 8, 1)

    def forward(self, q, feat):
        q = self.ask(q).unflatten(-1, (self.heads, 8)) * 8 ** -0.5
        k = self.match(feat).unflatten(1, (self.heads, 8))
        weights = torch.einsum("bqnc,bnchw->bqnhw", q, k)
        weights = weights.flatten(3).softmax(-1).view_as(weights)
        return weights
'''


@pytest.mark.parametrize(
    ("softmax", "is_right"),
    [
        ("weights.flatten(3).softmax(-1)", True),
        ("weights.flatten(2).softmax(-1)", False),
        # which head answers, for each key
        ("weights.softmax(2)", True),
    ],
)
def test_a_sum_of_all_heads_is_a_warning(softmax, is_right):
    source = MAP.replace("weights.flatten(3).softmax(-1)", softmax)
    warnings = [(each.kind, each.line) for each in found_in(source, "Map").findings if each.severity == "warning"]
    # DETR's published maps have one sum, so that it is no fault
    assert (("softmax-axis-merged", line_of(source, softmax)) in warnings) is not is_right
