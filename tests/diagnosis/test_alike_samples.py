"""Samples that hold the same numbers get the same results, unless each is given or draws something of its own."""

import pytest
import torch

import headwise as hw
from headwise.diagnosis.checks.batch_leak import _differs
from tests.diagnosis.kinds import TEMPLATES

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
    differs = _differs(torch.tensor([True, False, False]), torch.tensor([True, True, False]))
    assert differs.tolist() == [False, True, False]
