"""What an embedding looks up is whole numbers."""

import ast

import pytest

from headwise.calls.embedded_arguments import embedded

CLASS = """
def __init__(self, count, dim):
    self.table, self.embedding = nn.Embedding(count, dim), nn.Linear(dim, dim)
    self.items = nn.Embedding(count, dim)
    self.tables = nn.ModuleList([nn.Embedding(count, dim) for _ in range(2)])

def looked_up(self, a, b):
    return torch.cat([self.items(a), self.tables[0](b)], -1)

def forward(self, x, ids, y, w):
    return BODY
"""


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ("self.items(ids)", {"ids"}),
        ("self.items(ids[:, 1:]) + x", {"ids"}),
        ("self.tables[1](ids)", {"ids"}),
        ("self.looked_up(ids, b=y)", {"ids", "y"}),
        ("F.embedding(ids, w)", {"ids"}),
        # a projection that is called so
        ("self.embedding(x)", set()),
        ("self.items(ids + 1)", set()),
    ],
)
def test_arguments_that_a_table_takes(body, names):
    trees = {each.name: each for each in ast.parse(CLASS.replace("BODY", body)).body}
    assert embedded(trees, "forward", ("x", "ids", "y", "w")) == names
