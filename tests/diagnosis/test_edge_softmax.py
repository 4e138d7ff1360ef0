"""Attention along the edges of a graph: the weights of what a node receives sum to 1."""

import pytest

from headwise.diagnosis.comparison import COMPARISON
from tests.diagnosis.written import blamed_in, found_in, line_of

GRAPH = """import torch
import torch.nn as nn
import torch.nn.functional as F


def softmax(scores, index, nodes):
    at = index.unsqueeze(-1).expand_as(scores)
    largest = torch.full((nodes, scores.shape[1]), float("-inf"), dtype=scores.dtype)
    largest = largest.scatter_reduce(0, at, scores.detach(), reduce="amax")
    shares = (scores - largest.gather(0, at)).exp()
    return shares / torch.zeros(nodes, scores.shape[1], dtype=scores.dtype).index_add(0, index, shares)[index]


class Graph(nn.Module):
    def __init__(self, width, features, heads):
        super().__init__()
        self.heads, self.features = heads, features
        self.proj = nn.Linear(width, heads * features)
        self.source, self.target = (nn.Parameter(torch.randn(heads, features)) for _ in range(2))

    def forward(self, x, edge_index):
        # x: (nodes, width); edge_index: (2, edges)
        source, target = edge_index
        h = self.proj(x).view(-1, self.heads, self.features)
        scores = F.leaky_relu((h * self.source).sum(-1)[source] + (h * self.target).sum(-1)[target])
        weights = softmax(scores, target, len(x))
        return torch.zeros_like(h).index_add(0, target, h[source] * weights[..., None]).flatten(1)
"""
WITHIN = GRAPH.replace("weights = softmax(scores, target, len(x))", """shares = scores.exp()
        sums = torch.zeros(len(x), self.heads, dtype=x.dtype).scatter_add_(0, target[:, None].expand_as(shares), shares)
        weights = shares / sums[target]""")  # fmt: skip


@pytest.mark.parametrize(
    "source",
    [
        GRAPH,
        WITHIN,
        # messages the other way, shared out and added up at the same ends
        GRAPH.replace("source, target = edge_index", "target, source = edge_index"),
        # heads first, so that nodes lie along the second axis
        GRAPH.replace(
            "torch.zeros_like(h).index_add(0, target, h[source] * weights[..., None]).flatten(1)",
            "torch.zeros_like(h).transpose(0, 1).index_add(-2, target, (h[source] * weights[..., None])"
            ".transpose(0, 1)).transpose(0, 1).flatten(1)",
        ),
        # features of the edges, under another name
        GRAPH.replace("edge_index):", "edge_index, edge_attr):")
        .replace(
            "heads, features)) for _ in range(2))",
            "heads, features)) for _ in range(2))\n        self.edge = nn.Linear(width, heads)",
        )
        .replace("[target])\n        weights", "[target] + self.edge(edge_attr))\n        weights"),
        # a loop at each node beside its edges
        GRAPH.replace(
            "source, target = edge_index",
            "loops = torch.arange(len(x)).repeat(2, 1)\n        source, target = torch.cat([edge_index, loops], dim=1)",
        ),
    ],
    ids=["function", "within", "turned", "heads first", "features", "loops"],
)
def test_a_softmax_over_the_edges_that_enter_a_node_is_sound(source):
    found = found_in(source, "Graph")
    assert (found.verdict, found.faults) == ("sound", ())
    assert found.examined[COMPARISON].startswith("attention pooling")


@pytest.mark.parametrize(
    ("source", "right", "wrong"),
    [
        (GRAPH, "weights = softmax(scores, target, len(x))", "weights = softmax(scores, source, len(x))"),
        (WITHIN, "scatter_add_(0, target[:, None]", "scatter_add_(0, source[:, None]"),
    ],
    ids=["function", "within"],
)
def test_a_softmax_over_the_edges_that_leave_a_node_is_named_where_it_is_asked_for(source, right, wrong):
    source = source.replace(right, wrong).replace("sums[target]", "sums[source]")
    assert blamed_in(source, "Graph") == [("softmax-edges", line_of(source, wrong))]


@pytest.mark.parametrize(
    "weights",
    [
        # by how many edges a node has (arXiv:1609.02907): no softmax
        "weights = torch.bincount(target, minlength=len(x)).to(x)[target, None].rsqrt().expand_as(scores)",
        "weights = scores.sigmoid()",
    ],
    ids=["degree", "gates"],
)
def test_weights_that_nobody_shares_out_at_the_target_are_not_accused(weights):
    assert blamed_in(GRAPH.replace("weights = softmax(scores, target, len(x))", weights), "Graph") == []
