"""Words of axes: letters that stand for one thing in most code are named by what they are in this one."""

import re

import torch
from torch import nn

import headwise as hw
from headwise.tracing.legend import legend


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


class Reads(nn.Module):
    """Words look at regions, which are named as queries often are."""

    def __init__(self, width, heads):
        super().__init__()
        self.cross = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, text, query_regions):
        # text: (B, words, width)
        return self.cross(text, query_regions, query_regions, need_weights=False)[0]


def test_what_asks_is_l_whatever_it_is_called():
    trace = hw.trace(Reads)
    assert {name: shape[1] for name, shape in trace.call.items()} == {"text": "L", "query_regions": "S"}
    meanings = {symbol.name: symbol.meaning for symbol in trace.symbols}
    assert (meanings["L"], meanings["S"]) == ("queries", "keys")
    (step,) = [step for step in trace.steps if step.op == "MultiheadAttention"]
    assert [str(shape) for shape in step.inputs] == ["[B, L, D]", "[B, S, D]", "[B, S, D]"]


class Pools(nn.Module):
    def __init__(self, inner_width, out_width, heads):
        super().__init__()
        self.heads, self.q, self.out = heads, nn.Linear(inner_width, inner_width), nn.Linear(inner_width, out_width)

    def forward(self, x):
        q = self.q(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        y = ((q @ q.mT).softmax(-1) @ q).transpose(1, 2).flatten(2)
        return self.out(y) + x


def test_a_size_that_several_parameters_have_is_called_by_all_of_them():
    assert "D = H*d (inner_width, out_width)" in " · ".join(legend(hw.trace(Pools)))
    assert "H heads (heads)" in legend(hw.trace(Pools))


class Ahead(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.q, self.k = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x, horizon: int):
        past = x.shape[1] - horizon
        return (self.q(x[:, past:]) @ self.k(x[:, :past]).mT).softmax(-1) @ x[:, :past]


def test_a_number_of_a_call_is_named_as_its_argument():
    trace = hw.trace(Ahead)
    # the call may be copied as it is
    assert (trace.call["horizon"], "horizon = L//2" in legend(trace)) == ("L//2", True)
    assert "[B, horizon, L-horizon]" in {str(shape) for step in trace.steps for shape in step.outputs}


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
