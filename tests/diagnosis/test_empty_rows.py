"""Rows without a key: NaN that reaches real tokens is a fault; NaN that stays with padding is none."""

import pytest

from headwise.diagnosis.checks.empty_rows import _pads_at_left
from tests.diagnosis.written import found_in, line_of, loaded_from

LAYER = """import torch
from torch import nn


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.part = heads, width // heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, hidden):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, self.part)).permute(2, 0, 3, 1, 4)
        scores = q @ k.mT * self.part ** -0.5
        scores = scores.masked_fill(hidden[:, None], FILL)
        weights = scores.softmax(dim=-1)
        return x + self.out((weights @ v).transpose(1, 2).flatten(2))


"""
READER = (
    LAYER
    + '''class Reader(nn.Module):
    """SAID"""

    def __init__(self, n_items, width=24, heads=2, depth=2):
        super().__init__()
        self.items = nn.Embedding(n_items, width, padding_idx=0)
        self.layers = nn.ModuleList([Layer(width, heads) for _ in range(depth)])

    def forward(self, items):
        is_pad = items == 0
        hidden = HIDDEN
        x = self.items(items)
        for layer in self.layers:
            x = layer(x, hidden)
        return x.masked_fill(is_pad[..., None], 0.0)
'''
)
PAIRS = "is_pad[:, None, :] | is_pad[:, :, None]"
KEYS = "is_pad[:, None, :].expand(-1, items.shape[1], -1)"
LATER = "torch.ones(items.shape[1], items.shape[1], dtype=torch.bool).triu(1)[None] | is_pad[:, None, :]"
LEFT = "Sequences are padded on the left with item 0."

ENCODER = (
    LAYER
    + """class Encoder(nn.Module):
    def __init__(self, width=24, heads=2, depth=2):
        super().__init__()
        self.layers = nn.ModuleList([Layer(width, heads) for _ in range(depth)])

    def forward(self, x, mask=None):
        if mask is None:
            mask = torch.ones(x.shape[:2], dtype=torch.bool)
        mask = mask.bool()
        hidden = ~(mask[:, None, :] & mask[:, :, None])
        for layer in self.layers:
            x = layer(x, hidden)
        return x * mask[..., None]
"""
)
GRAPH = (
    LAYER
    + """class Graph(nn.Module):
    def __init__(self, width=24, heads=2, depth=2):
        super().__init__()
        self.layers = nn.ModuleList([Layer(width, heads) for _ in range(depth)])

    def forward(self, nodes, adj, node_mask=None):
        if node_mask is None:
            node_mask = torch.ones(nodes.shape[:2], dtype=torch.bool)
        edges = (adj != 0) & node_mask[:, None, :] & node_mask[:, :, None]
        for layer in self.layers:
            nodes = layer(nodes, ~edges)
        real = node_mask[..., None].to(nodes.dtype)
        return (nodes * real).sum(dim=1) / real.sum(dim=1)
"""
)


def blamed_in(source, name):
    return [(each.kind, each.line) for each in found_in(source, name).faults]


def reader(hidden, said="Reads items.", fill='float("-inf")'):
    return READER.replace("SAID", said).replace("HIDDEN", hidden).replace("FILL", fill)


@pytest.mark.parametrize(("hidden", "said"), [(PAIRS, "Reads items."), (LATER, LEFT)])
def test_padding_that_turns_the_items_of_its_sample_into_nan_is_found(hidden, said):
    source = reader(hidden, said)
    assert blamed_in(source, "Reader") == [("empty-row-spreads", line_of(source, "scores.softmax"))]


@pytest.mark.parametrize(
    "source",
    [
        reader(PAIRS, fill="-1e4"),
        reader(KEYS),
        # padding stands behind the items, where a causal mask leaves no row empty
        reader(LATER),
        reader(LATER, "Sequences are padded on the right and not on the left."),
        reader(KEYS, LEFT),
        reader(LATER, LEFT).replace("scores.softmax(dim=-1)", "scores.softmax(dim=-1).nan_to_num(0.0)"),
        # the rows of padding alone are NaN
        reader(PAIRS).replace("depth=2", "depth=1"),
    ],
    ids=["finite", "keys", "causal", "right", "keys-left", "zeroed", "one-layer"],
)
def test_padding_that_leaves_the_items_numbers_is_right(source):
    assert blamed_in(source, "Reader") == []


COUNTED = (
    ENCODER.replace("mask=None", "lengths=None")
    .replace(
        "if mask is None:\n            mask = torch.ones(x.shape[:2], dtype=torch.bool)",
        "if lengths is None:\n            lengths = torch.full((x.shape[0],), x.shape[1])",
    )
    .replace("mask = mask.bool()", "mask = torch.arange(x.shape[1]) < lengths[:, None]")
)


@pytest.mark.parametrize(
    ("source", "name"), [(ENCODER, "Encoder"), (COUNTED, "Encoder"), (GRAPH, "Graph")], ids=["mask", "lengths", "graph"]
)
def test_a_mask_of_tokens_that_turns_real_ones_into_nan_is_found(source, name):
    wrong, right = (source.replace("FILL", fill) for fill in ('float("-inf")', "-1e4"))
    assert blamed_in(wrong, name) == [("empty-row-spreads", line_of(wrong, "scores.softmax"))]
    assert blamed_in(right, name) == []


def test_edges_without_a_mask_of_nodes_may_leave_each_node_itself():
    source = GRAPH.replace("FILL", 'float("-inf")').replace(", node_mask=None", "")
    source = source.replace(
        "if node_mask is None:\n            node_mask", "if adj is not None:\n            node_mask"
    )
    assert blamed_in(source, "Graph") == []


@pytest.mark.parametrize(
    ("said", "is_left"),
    [
        (LEFT, True),
        ("Left-padded token ids.", True),
        ("Prompts carry their padding at the beginning.", True),
        ("历史序列在左侧填充 0。", True),
        ("Token ids, padded at the end.", False),
        ("Never pad the sequences on the left.", False),
        ("The sequence is left-padded for the causal convolution.", False),
        ("Sequences are padded on the left or on the right.", False),
    ],
)
def test_a_file_says_that_padding_stands_before_the_tokens(said, is_left):
    assert _pads_at_left(loaded_from(reader(KEYS, said), "Reader")[0]) is is_left
