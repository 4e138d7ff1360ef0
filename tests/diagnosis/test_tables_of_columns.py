"""Rows of a table are called as they are documented: lists of sizes, whole numbers, and their columns as tokens."""

import pytest

import headwise as hw
from tests.diagnosis.written import line_of

TABLE = '''import torch
from torch import nn


class Table(nn.Module):
    """The columns of a row attend to each other.

    categories (batch, columns) long, numbers (batch, n_numbers) float
    """

    def __init__(self, cardinalities, n_numbers, dim=32, heads=4, dim_out=1):
        super().__init__()
        offsets = torch.tensor([0] + list(cardinalities[:-1])).cumsum(0)
        self.register_buffer("offsets", offsets)
        self.embed = nn.Embedding(sum(cardinalities), dim)
        layer = nn.TransformerEncoderLayer(dim, heads, 2 * dim, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False)
        self.head = nn.Linear(len(cardinalities) * dim + n_numbers, dim_out)

    def forward(self, categories, numbers):
        x = self.encoder(self.embed(categories + self.offsets))
        return self.head(torch.cat((x.flatten(1), numbers), dim=-1))
'''
READ_OUT = '''import torch
from torch import nn


class Columns(nn.Module):
    """numbers: (rows, n_numbers) float; kinds: (rows, len(cardinalities)) long"""

    def __init__(self, n_numbers=6, cardinalities=(4, 12, 3), width=32, heads=4):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n_numbers, width))
        self.tables = nn.ModuleList([nn.Embedding(count, width) for count in cardinalities])
        self.read_out = nn.Parameter(torch.randn(1, 1, width))
        layer = nn.TransformerEncoderLayer(width, heads, 2 * width, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False)
        self.head = nn.Linear(width, 1)

    def forward(self, numbers, kinds):
        tokens = [self.read_out.expand(numbers.shape[0], -1, -1), numbers[:, :, None] * self.weight]
        tokens += [table(kinds[:, at])[:, None] for at, table in enumerate(self.tables)]
        h = self.encoder(torch.cat(tokens, dim=1))
        return self.head(h[:, 0])
'''
ONE_TABLE = '''import torch
from torch import nn


class Fields(nn.Module):
    """x: (batch, n_fields), the category of each field"""

    def __init__(self, cardinalities=(7, 5, 12, 3), d=32, heads=4):
        super().__init__()
        self.tables = nn.ModuleList([nn.Embedding(count, d) for count in cardinalities])
        layer = nn.TransformerEncoderLayer(d, heads, 2 * d, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False)
        self.head = nn.Linear(len(cardinalities) * d, 1)

    def forward(self, x):
        tokens = torch.stack([table(x[:, at]) for at, table in enumerate(self.tables)], dim=1)
        h = self.encoder(tokens)
        return self.head(h.flatten(1))
'''


@pytest.mark.parametrize(
    ("source", "name"),
    [(TABLE, "Table"), (READ_OUT, "Columns"), (ONE_TABLE, "Fields")],
    ids=["two inputs, sizes not given", "read from one token, of which no input comes", "one input"],
)  # fmt: skip
def test_rows_that_attend_in_place_of_columns_are_found(tmp_path, source, name):
    file = tmp_path / "written.py"
    file.write_text(source, encoding="utf-8")
    assert hw.doctor(f"{file}:{name}").verdict == "sound"
    turned = source.replace(", batch_first=True", "")
    file.write_text(turned, encoding="utf-8")
    report = hw.doctor(f"{file}:{name}")
    line = line_of(turned, "nn.TransformerEncoderLayer(")
    assert [(each.kind, each.line) for each in report.faults] == [("batch-length-confused", line)]
