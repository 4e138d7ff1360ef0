"""Words of axes: letters that stand for one thing in most code are named by what they are in this one."""

import re

import torch
from torch import nn

import headwise as hw


class Edges(nn.Module):
    """Attention along the edges of a graph."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.q, self.k = heads, nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x, edge_index):
        """x: [N, width]; edge_index: [2, E], from which node to which"""
        source, target = edge_index
        q, k = (part(x).unflatten(-1, (self.heads, -1)) for part in (self.q, self.k))
        scores = (q[target] * k[source]).sum(-1) * k.shape[-1] ** -0.5
        weights = scores.exp() / torch.zeros(len(x), self.heads).index_add(0, target, scores.exp())[target]
        return torch.zeros_like(q).index_add(0, target, weights[..., None] * k[source]).flatten(1)


class Latest(nn.Module):
    """Each token sees what is shown beside it."""

    def __init__(self, width, seen_width):
        super().__init__()
        self.q, self.kv = nn.Linear(width, width), nn.Linear(seen_width, 2 * width)

    def forward(self, x, media):
        """x: (B, T, D); media: features of what is shown, of shape (B, images, n, seen_width), n for each image"""
        k, v = self.kv(media.flatten(1, 2)).chunk(2, -1)
        return (self.q(x) @ k.mT * k.shape[-1] ** -0.5).softmax(-1) @ v


def test_a_graph_has_nodes_and_edges():
    trace = hw.trace(Edges)
    names = {symbol.name: symbol.equals for symbol in trace.symbols}
    assert (names["nodes"], names["edges"]) == ("", "3*nodes")
    shapes = {str(shape) for step in trace.steps for shape in (*step.inputs, *step.outputs)}
    assert {"[edges, H]", "[nodes, H, d]", "[2, edges]"} <= shapes
    assert not re.search(r"\bL\b", trace.call["edge_index"]["_expr"])


def test_a_letter_that_the_code_says_itself_has_no_other_meaning():
    trace = hw.trace(Latest)
    (said,) = [(symbol.meaning, symbol.said) for symbol in trace.symbols if symbol.name == "n"]
    assert said == ("parameter", "")
    assert "images" in {symbol.name for symbol in trace.symbols}
