"""Samples that hold the same numbers get the same results, unless each is given or draws something of its own."""

import pytest
import torch

import headwise as hw
from headwise.diagnosis.checks.batch_leak import differs
from tests.diagnosis.kinds import TEMPLATES
from tests.diagnosis.written import HEAD, found_in

SCORES = "        scores = scores / math.sqrt(self.head_dim)\n"
ALIKE = """        bias = torch.linspace(0, 1, x.shape[0] * self.n_heads, device=x.device).view(x.shape[0], -1, 1, 1)
        far = torch.arange(x.shape[1], device=x.device)
        scores = scores / math.sqrt(self.head_dim) - bias * (far[:, None] - far).abs()
"""


def kinds_of(tmp_path, text):
    """The faults of a class in a file."""
    file = tmp_path / "model.py"
    file.write_text(text, encoding="utf-8")
    return [each.kind for each in hw.doctor(f"{file}:Attention").faults]


def test_a_bias_that_differs_from_sample_to_sample_is_a_fault(tmp_path):
    assert kinds_of(tmp_path, TEMPLATES["SELF"].text.replace(SCORES, ALIKE)) == ["samples-unlike"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("torch.linspace(0, 1, x.shape[0] * self.n_heads, device=x.device)", "torch.rand(x.shape[0] * self.n_heads)"),
        (
            "x.shape[0] * self.n_heads, device=x.device).view(x.shape[0], -1",
            "self.n_heads, device=x.device).view(1, -1",
        ),
    ],
    ids=["drawn", "one for each head"],
)
def test_what_is_drawn_or_the_same_for_all_is_left(tmp_path, before, after):
    text = TEMPLATES["SELF"].text.replace(SCORES, ALIKE.replace(before, after))
    assert before not in text
    assert "samples-unlike" not in kinds_of(tmp_path, text)


def test_truths_of_which_token_is_padding_differ_where_they_are_not_equal():
    apart = differs(torch.tensor([True, False, False]), torch.tensor([True, True, False]))
    assert apart.tolist() == [False, True, False]


ROWS = (
    HEAD
    + """
class Rows(nn.Module):
    '''Columns of a row attend to each other, and then the rows of a batch.'''

    def __init__(self, cardinalities, n_cont, dim=12, heads=2):
        super().__init__()
        columns = 1 + len(cardinalities) + n_cont
        self.register_buffer("offsets", torch.tensor([0, *cardinalities[:-1]]).cumsum(0))
        self.heads, self.first = heads, nn.Parameter(torch.randn(1, 1, dim))
        self.kinds, self.scale = nn.Embedding(sum(cardinalities), dim), nn.Parameter(torch.randn(n_cont, dim))
        self.within, self.across = nn.Linear(dim, 3 * dim), nn.Linear(dim * columns, 3 * dim * columns)

    def attend(self, packed):
        q, k, v = packed.unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return ((q @ k.mT * q.shape[-1] ** -0.5).softmax(-1) @ v).transpose(1, 2).flatten(2)

    def forward(self, kinds, numbers):
        first = self.first.expand(len(kinds), -1, -1)
        x = torch.cat([first, self.kinds(kinds + self.offsets), numbers.unsqueeze(-1) * self.scale], 1)
        x = x + self.attend(self.within(x))
        rows = x.reshape(1, x.shape[0], -1)
        return (x + self.attend(self.across(rows)).reshape(x.shape))[:, 0]
"""
)
PAIRED = (
    HEAD
    + """
class Paired(nn.Module):
    '''Sequences of one family; what is known of pairs of places is shared by all of them.'''

    def __init__(self, dim, pair_dim, heads):
        super().__init__()
        self.heads, self.pack, self.of_pair = heads, nn.Linear(dim, 3 * dim), nn.Linear(pair_dim, heads)

    def forward(self, m, z):
        bias = self.of_pair(z).permute(0, 3, 1, 2).unsqueeze(1)
        q, k, v = self.pack(m).unflatten(-1, (3, self.heads, -1)).movedim(-3, 0).transpose(-2, -3)
        return ((q @ k.mT * q.shape[-1] ** -0.5 + bias).softmax(-1) @ v).transpose(-2, -3).flatten(-2)
"""
)


def test_rows_of_a_table_attend_to_each_other_where_each_is_a_token_with_all_its_columns():
    found = found_in(ROWS, "Rows")
    assert (found.verdict, found.faults) == ("sound", ())
    assert found.examined["samples"] is not True


def test_samples_that_are_crossed_by_too_few_axes_accuse_nobody(tmp_path):
    file = tmp_path / "model.py"
    file.write_text(PAIRED, encoding="utf-8")
    call = {"m": ["B", "L", "D"], "z": ["B", "L", "L", "pair_dim"]}
    found = hw.doctor(f"{file}:Paired", call=call)
    assert (found.verdict, found.faults) == ("not examined", ())
