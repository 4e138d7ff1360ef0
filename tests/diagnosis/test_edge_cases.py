"""Warnings and notes: edges, half precision, odd widths, missing projections; none of them makes a verdict faulty."""

import pytest

from tests.diagnosis.test_laws import SOURCE, changed, told
from tests.diagnosis.written import line_of

CHECK = """        if width % heads:
            raise ValueError("heads must divide width")
"""


def notes_and_warnings(source):
    found, _ = told(source)
    return found, [(each.severity, each.kind, each.line) for each in found.findings]


def test_a_row_that_may_see_nothing_is_a_warning():
    found, said = notes_and_warnings(SOURCE)
    assert found.verdict == "sound"
    assert said == [("warning", "mask-empty-row", line_of(SOURCE, "F.softmax"))]


def test_a_width_that_is_not_checked_is_a_warning_at_its_division():
    source = changed((CHECK, ""))
    found, said = notes_and_warnings(source)
    assert found.verdict == "sound"
    assert ("warning", "heads-not-divisible", line_of(source, "width // heads")) in said


def test_a_width_that_is_refused_by_an_assertion_in_the_call_is_no_warning():
    source = changed((CHECK, ""), ("        q = self.split", "        assert query.size(-1) % self.heads == 0\n"
                                   "        q = self.split"))  # fmt: skip
    _, said = notes_and_warnings(source)
    assert [each for each in said if each[1] == "heads-not-divisible"] == []


def test_a_large_fill_and_a_softmax_by_hand_are_warnings_in_half_precision_only():
    by_hand = "torch.exp(scores) / torch.exp(scores).sum(-1, keepdim=True)"
    source = changed(('float("-inf")', "-1e9"), ("F.softmax(scores, dim=-1)", by_hand))
    found, said = notes_and_warnings(source)
    assert found.verdict == "sound"
    assert ("warning", "mask-half-overflow", line_of(source, "-1e9")) in said
    assert ("warning", "half-overflow", line_of(source, "torch.exp(scores)")) in said


def test_a_softmax_of_lengths_of_nothing_is_a_warning():
    source = changed(
        ("mask=None", "valid_lens=None"), ("if mask is not None", "if valid_lens is not None"),
        ('masked_fill(mask == 0, float("-inf"))',
         'masked_fill(torch.arange(k.size(2)) >= valid_lens[:, None, None, None], float("-inf"))'),
    )  # fmt: skip
    found, said = notes_and_warnings(source)
    assert found.examined["mask"] == "valid_lens: lengths"
    assert ("warning", "mask-empty-row", line_of(source, "F.softmax")) in said


NO_OUT = (("        self.out = nn.Linear(width, width)\n", ""), ("return self.out(mixed)", "return mixed"))


def test_heads_that_are_merged_and_returned_are_a_note():
    source = changed(*NO_OUT)
    found, said = notes_and_warnings(source)
    assert found.verdict == "sound"
    assert ("note", "no-output-projection", line_of(source, "mixed = torch.matmul")) in said
    assert said[-1][0] == "note"


@pytest.mark.parametrize(
    "prose", ["# the heads are mixed by the output projection", '"""concat(head_1, ..., head_h) W^O"""', "# 输出投影"]
)
def test_a_projection_that_the_class_speaks_of_and_has_not_is_a_suspected_fault(prose):
    source = changed(*NO_OUT, ("        q = self.split", f"        {prose}\n        q = self.split"))
    found, said = notes_and_warnings(source)
    assert ("fault", "projection-missing", line_of(source, "mixed = torch.matmul")) in said
    assert [each.proved for each in found.faults] == [False]


def test_a_class_that_says_that_the_projection_follows_elsewhere_has_no_fault():
    source = changed(*NO_OUT, ("        q = self.split", "        # no output projection here\n        q = self.split"))
    found, _ = notes_and_warnings(source)
    assert found.faults == ()


TURNED = """import torch
import torch.nn as nn


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.attend = nn.MultiheadAttention(width, heads)

    def forward(self, x):
        # x: (batch, length, width)
        batch, length, width = x.shape
        return self.attend(x, x, x)[0]
"""


def test_samples_that_attend_to_each_other_are_proved_to():
    found, faults = told(TURNED)
    assert [(each.kind, each.line, each.proved) for each in faults] == [
        ("batch-length-confused", line_of(TURNED, "self.attend ="), True)
    ], str(found)


def test_samples_that_see_only_those_before_them_are_proved_to():
    # the first sample sees itself alone
    seen = "triangle = torch.ones(batch, batch, device=x.device).triu(1).bool()\n        "
    source = TURNED.replace("return self.attend(x, x, x)", seen + "return self.attend(x, x, x, attn_mask=triangle)")
    found, faults = told(source)
    assert [(each.kind, each.line, each.proved) for each in faults] == [
        ("batch-length-confused", line_of(source, "self.attend ="), True)
    ], str(found)


def test_a_mask_of_keys_that_lies_along_the_queries_is_told():
    source = changed(("mask == 0", "mask.transpose(-2, -1) == 0"))
    found, faults = told(source)
    assert [(each.kind, each.line) for each in faults] == [("mask-axis", line_of(source, "mask.transpose"))], str(found)


HEAD = "class Attention(nn.Module):\n"


@pytest.mark.parametrize(
    ("words", "is_fault"),
    [("Served with model.half().", True), ("Half precision is not supported.", False), ("Attention.", False)],
)
def test_a_fill_that_float16_cannot_hold_is_a_fault_of_a_class_that_says_it_runs_so(words, is_fault):
    source = changed(('float("-inf")', "-1e9"), (HEAD, f'{HEAD}    """{words}"""\n\n'))
    found, said = notes_and_warnings(source)
    assert (found.verdict == "faulty") is is_fault
    line = line_of(source, "-1e9")
    assert [(each.kind, each.line) for each in found.faults] == ([("mask-half-overflow", line)] if is_fault else [])
    assert (("warning", "mask-half-overflow", line) in said) is not is_fault


def test_a_class_that_is_built_in_float16_is_called_all_the_same():
    source = changed(
        ("self.query = nn.Linear(width, width)", "self.query = nn.Linear(width, width, dtype=torch.float16)"),
        ("self.query(query)", "self.query(query.to(self.query.weight.dtype)).to(query.dtype)"),
        ('float("-inf")', "torch.finfo(scores.dtype).min"),
    )
    assert notes_and_warnings(source)[0].verdict == "sound"
