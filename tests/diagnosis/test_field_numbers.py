"""Numbers of fields: a table of all fields and a shift for each make the class's own call, with the batch first."""

import pytest

import headwise as hw
from tests.diagnosis.written import line_of

RIGHT = '''import torch
from torch import nn


class Fields(nn.Module):
    """Scores samples, whose fields attend to each other."""

    def __init__(self, cardinalities, table_dim=12, width=16, heads=2):
        super().__init__()
        starts = torch.tensor([0, *cardinalities[:-1]]).cumsum(0)
        self.register_buffer("starts", starts, persistent=False)
        self.table = nn.Embedding(sum(cardinalities), table_dim)
        self.widen = nn.Linear(table_dim, width)
        self.mix = nn.MultiheadAttention(width, heads, batch_first=True)
        self.around = nn.Linear(width, width, bias=False)
        self.score = nn.Linear(len(cardinalities) * width, 1)

    def forward(self, x):
        fields = self.widen(self.table(x + self.starts))
        mixed, _ = self.mix(fields, fields, fields, need_weights=False)
        mixed = torch.relu(mixed + self.around(fields))
        return torch.sigmoid(self.score(mixed.flatten(1)).squeeze(1))
'''
WRONG = RIGHT.replace(", batch_first=True", "")
TURNED = WRONG.replace("self.starts))", "self.starts)).transpose(0, 1)").replace(
    "mixed.flatten", "mixed.transpose(0, 1).flatten"
)
FIRST = WRONG.replace("self.starts))", "self.starts[:, None]))").replace(
    "mixed.flatten", "mixed.transpose(0, 1).flatten"
)


def verdict_of(tmp_path, source):
    """The verdict on the class of a source, and the kind and the line of each fault."""
    file = tmp_path / "fields.py"
    file.write_text(source, encoding="utf-8")
    diagnosis = hw.doctor(f"{file}:Fields")
    return diagnosis.verdict, [(each.kind, each.line) for each in diagnosis.faults]


def test_samples_whose_fields_are_taken_for_the_batch_by_torchs_layer(tmp_path):
    assert verdict_of(tmp_path, WRONG) == (
        "faulty",
        [("batch-length-confused", line_of(WRONG, "nn.MultiheadAttention("))],
    )


@pytest.mark.parametrize("source", [RIGHT, TURNED, FIRST], ids=["batch first", "turned for it", "fields first"])
def test_fields_of_one_sample_may_attend_to_each_other_in_any_order_of_axes(tmp_path, source):
    assert verdict_of(tmp_path, source) == ("sound", [])
